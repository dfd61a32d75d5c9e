"""What the fracture study claims: of pictures, their siblings, the archive's genomes, students."""

from __future__ import annotations

from typing import Any

from recombine.lab.study import Claim
from recombine.studies import _fracture as parts
from recombine.studies import _fracture_siblings as siblings
from recombine.studies import _fracture_students as students


def claims(grid: Any) -> list[Claim]:
    return [*of_pictures(grid), *of_siblings(grid), *of_genomes(grid), *of_students(grid)]


def of_pictures(grid: Any) -> list[Claim]:
    def pair(name: str, sentence: str, measure: Any, **criterion: Any) -> Claim:
        return Claim(name, sentence, measure, unit="pictures", **criterion)

    error = f"{grid.error:g}"
    return [
        pair("floor: descent draws the pictures",
             f"Networks trained by descent reach an error of at most {error} on at least .75 of "
             "our evolved pictures",
             parts.drawn(grid), at_least=0.75),
        pair("evolved whole, trained fractured",
             "The symmetry concordance of neurons is higher, by at least .35, in evolution's "
             f"network than in its twin trained by descent to an error of at most {error}",
             parts.whole(grid), at_least=parts.GAP),
        pair("the same in symmetric pictures",
             f"The same where the picture itself has a symmetry of at least {grid.symmetric:g}",
             parts.whole(grid, grid.symmetric), at_least=parts.GAP),
        pair("more than being small",
             "The same difference is larger in evolution's networks than in genomes that had as "
             "many mutations, and have as many hidden nodes, but that nobody selected",
             parts.beyond_size(grid, "concordance"), above=0.0),
        pair("also in another basis",
             "It is larger than in unselected genomes also after every layer was rotated at random",
             parts.beyond_size(grid, "rotated"), above=0.0),
        pair("planted: stencils are told apart",
             "The difference is at least .35 where a stencil, symmetric by making, takes the place "
             "of evolution",
             parts.between(grid, "concordance", "descent", "evolved", "stencils"),
             at_least=parts.GAP),
        pair("training adds little symmetry",
             "The concordance of networks trained by descent is at most .1 above that of their "
             "untrained twins",
             parts.over_untrained(grid), at_most=0.1),
        pair("more distinct maps",
             "Networks trained by descent have more distinct feature maps than their untrained "
             "twins (ratio)",
             parts.over_untrained(grid, "distinct", ratio=True), above=1.0),
        pair("rougher maps",
             "Their feature maps vary more from pixel to pixel than those of their untrained twins "
             "(ratio)",
             parts.over_untrained(grid, "variation", ratio=True), above=1.0),
        pair("sweeps keep the symmetry",
             "What changing one weight does to the picture is more symmetric in evolution's "
             "network than in its twin, by more than in unselected genomes",
             parts.beyond_size(grid, "sweep_symmetry"), above=0.0),
        pair("the path matters",
             "Descent along the pictures of the ancestors, to an error of at most "
             f"{error}, ends at a concordance higher by at least .15 than descent on the picture "
             "alone, at the same error (where the difference of log errors is 0, fitted over "
             "pictures)",
             parts.at_one_error(grid, "concordance", "descent", "curriculum"), at_least=0.15),
        pair("evolution told what to draw fails",
             f"Evolution towards the picture ends, after {grid.directed:,} evaluations, at an "
             "error at least 10 times that of descent (log10 of the ratio)",
             parts.directed_error(grid), at_least=1.0),
    ]  # fmt: skip


def of_siblings(grid: Any) -> list[Claim]:
    bound = f"an error of {grid.matched:g}"
    sooner = [
        Claim(f"fracture costs steps: {sibling}",
              "Networks trained by descent take more steps than evolution's, idle neurons awake, "
              f"until {bound} on the {sibling} picture (log2 of the ratio)",
              siblings.slower(grid, sibling), unit="pictures", above=0.0)
        for sibling in grid.siblings
    ]  # fmt: skip
    return [
        *sooner,
        Claim("fracture costs steps: idle neurons asleep",
              "The same over all siblings for evolution's networks as they are, most of whose "
              "neurons have zeros on both sides, so that no gradient reaches them",
              siblings.slower(grid, *grid.siblings, whole="evolved"), unit="pictures", above=0.0),
        Claim("concordance tells who learns a sibling sooner",
              "Among the networks of one picture, evolution's awake, those in which the neurons "
              "that are heard have a higher concordance take fewer steps until "
              f"{bound} on its siblings (rank correlation within picture and sibling)",
              siblings.foretold(grid), unit="pictures", below=0.0),
        Claim("also among trained networks",
              "The same among those trained by descent, with or without a curriculum, given the "
              "error they had reached on their own picture",
              siblings.foretold(grid, trained=True), unit="pictures", below=0.0),
    ]  # fmt: skip


def of_genomes(grid: Any) -> list[Claim]:
    skull = parts.archived(grid, "skull")
    return [
        Claim("skull: descent draws it",
              "Twins of the archive's skull trained by descent reach an error of at most .001",
              skull("error"), at_most=parts.DRAWN),
        Claim("skull: its twins are fractured",
              "The concordance of its twins that draw it is at most .6, where that of the "
              "archive's own network is at least .95",
              skull("concordance"), at_most=0.6),
        Claim("skull: few symmetric neurons",
              "At most .15 of the distinct maps of a twin have a concordance above .95",
              skull("symmetric_share"), at_most=0.15),
        Claim("skull: rougher maps",
              "The maps of its twins vary from pixel to pixel at least 1.4 times as much as those "
              "of the archive's network",
              skull("variation", over="archive"), at_least=1.4),
        Claim("skull: rougher by descent",
              "They vary more than those of the same twins before training (ratio): it is descent "
              "that does it, not the layered form",
              skull("variation", over="untrained"), above=1.0),
        Claim("skull: more distinct maps",
              "Its twins have at least 5 times as many distinct maps as the archive's network",
              skull("distinct", over="archive"), at_least=5.0),
        Claim("skull: more maps by descent",
              "They have more than the same twins before training (ratio): it is descent that does "
              "it, not the layered form",
              skull("distinct", over="untrained"), above=1.0),
    ]  # fmt: skip


def of_students(grid: Any) -> list[Claim]:
    words = {
        "concordance": "in which units answer to a module alike in any company",
        "disentanglement": "whose units tell of one module each",
        "selectivity": "whose single weights matter to one module each",
    }
    told = [
        Claim(f"{measure} tells who learns a new module sooner",
              f"Among students of one teacher that saw the same combinations, those {text} "
              f"({measure}) take fewer steps to a seen score of {grid.learnt:g} on a new module "
              "(correlation with log2 steps within seed and share)",
              students.new_module(grid, measure), below=0.0)
        for measure, text in words.items()
    ]  # fmt: skip
    return [
        Claim("floor: known modules help",
              "From scratch a new module takes more steps than for students that know the others "
              "(log2 of the ratio)", students.from_scratch(grid), above=0.0),
        *told,
        Claim("concordance tells more than the unseen score",
              "The correlation of concordance with steps is below 0 also given the student's own "
              "score on unseen combinations",
              students.new_module(grid, "concordance", beyond=True), below=0.0),
    ]  # fmt: skip
