"""Judgements already paid for are kept like every other answer of a model."""

from recombine.live.answers import AnswerLog as AnswerLog
