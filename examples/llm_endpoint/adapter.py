"""The model of the example: a language model that routes messages to teams.

It is asked at any endpoint that speaks OpenAI's chat completions: ROUTER_URL is the part before
/chat/completions, ROUTER_MODEL its name there. The key is read from OPENAI_API_KEY where there is
one. Every answer is kept in answers.jsonl, and none is paid for twice.
"""

from __future__ import annotations

import os

from recombine.adapters import EndpointModel
from recombine.live import ChatEndpoint

TEAMS = ("repair", "watch shop", "shipping", "billing")
PROMPT = (
    "A customer writes to a shop. Which team should read it: repair, watch shop (repairs of "
    "watches), shipping or billing? Answer with the team alone.\n\n{text}"
)


def model() -> EndpointModel:
    key = "OPENAI_API_KEY"
    endpoint = ChatEndpoint(
        os.environ.get("ROUTER_URL", "http://127.0.0.1:8000/v1"),
        os.environ.get("ROUTER_MODEL", "router"),
        log=os.environ.get("ROUTER_LOG", "answers.jsonl"),
        key_variable=key if os.environ.get(key) else None,
        most_calls=2_000,
    )
    return EndpointModel(PROMPT, endpoint, choices=TEAMS, name="router")
