"""What the study of binding claims, and the conditions under which a claim may speak."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recombine.lab.study import Claim
from recombine.studies import _binding as parts
from recombine.studies._binding import BAG, CHANNELS, CONV, SLOTS

if TYPE_CHECKING:
    from recombine.studies.binding import Grid


def swaps(grid: Grid) -> list[Claim]:
    largest, least = max(grid.width), min(grid.held_out)
    return [
        Claim("swap: a bag of features guesses",
              "Where only the binding tells, a network that pools colours and shapes apart is "
              "right in .50 of the cases, within .03",
              parts.mean("swap", BAG, parts.seen), at_least=0.47, at_most=0.53),
        Claim("swap: slots bind",
              f"Slots of width {largest} are right in at least .95 of them (trained pairs)",
              parts.mean("swap", SLOTS, parts.seen, able=False, width=largest, held_out=least),
              at_least=0.95),
        Claim("swap: plain convolution binds two objects",
              f"So is plain convolution of width {largest}: two objects are no difficulty",
              parts.mean("swap", CONV, parts.seen, able=False, width=largest, held_out=least),
              at_least=0.95),
    ]  # fmt: skip


def pairs(grid: Grid) -> list[Claim]:
    """Colour-shape pairs that were never trained: does scale close the gap, does coverage?"""
    (small, large), (least, most) = (
        (min(values), max(values)) for values in (grid.width, grid.held_out)
    )
    found = []
    for model, name in ((CONV, "convolution"), (SLOTS, "slots")):
        narrow, wide = ({"width": w, "held_out": least} for w in (small, large))
        if small < large:
            found += [
                Claim(f"held-out pairs: width closes the gap of {name}",
                      f"The gap between trained and held-out pairs is smaller at width {large} "
                      f"than at {small}, {least:.3g} held out",
                      parts.paired("swap", (model, narrow), (model, wide), parts.gap), below=0.0),
                Claim(f"held-out pairs: also at matched score, {name}",
                      f"At width {large} more held-out pairs are right when trained pairs first "
                      f"reach .9 than at {small}",
                      parts.paired("swap", (model, narrow), (model, wide), parts.at_matched),
                      above=0.0),
            ]  # fmt: skip
        if least < most:
            poor = {"width": large, "held_out": most}
            found.append(Claim(
                f"held-out pairs: coverage closes the gap of {name}",
                f"The gap is smaller with {least:.3g} of the pairs held out than with {most:.3g}",
                parts.paired("swap", (model, poor), (model, wide), parts.gap), below=0.0,
            ))  # fmt: skip
    home = {"width": large, "held_out": least}
    found.append(Claim(
        "held-out pairs: slots carry over more",
        f"At width {large}, slots are right about more held-out pairs than plain convolution",
        # Not the gap: who learnt trained pairs less well would have a smaller one.
        parts.paired("swap", (CONV, home), (SLOTS, home), parts.unseen), above=0.0,
    ))  # fmt: skip
    return found


def reports() -> list[Claim]:
    return [
        Claim("report: the bag swaps features",
              "A bag reports at least twice as many conjunctions of features that are there but "
              "not together as slots do (an object; bag minus twice slots), where it reports any",
              parts.where_above(
                  parts.against_double("report", BAG, SLOTS, parts.conjunctions), "report", BAG,
                  parts.conjunctions, 0.0,
                  "There is nothing to compare: the bag's number of conjunctions an object",
              ), at_least=0.0),
        Claim("report: its errors are conjunctions",
              "Among wrong things the share of conjunctions is at least twice that of slots (bag "
              "minus twice slots), where the bag has any",
              parts.where_above(
                  parts.against_double("report", BAG, SLOTS, parts.conjunction_share), "report",
                  BAG, parts.conjunction_share, 0.0,
                  "There is nothing to compare: the bag's share of conjunctions",
              ), at_least=0.0),
        Claim("report: more than guessing",
              "That share of the bag is above what guessing both features of a wrong thing gives "
              "on the same scenes",
              parts.mean("report", BAG, parts.beyond_guessing), above=0.0),
    ]  # fmt: skip


def search(grid: Grid) -> list[Claim]:
    few, many = min(grid.tested), max(grid.tested)
    by_colour, bound = parts.finds_among(many, parts.ROOM), parts.binds_among(few)
    # Who loses search by colour too would have a small difference for that alone.
    whole = parts.finds_among(many, parts.LEARNT)
    slopes = {BAG: (by_colour,), CONV: (by_colour, bound), SLOTS: (whole, bound)}
    return [
        Claim("search: conjunctions cost the bag",
              f"Among {many} objects, a bag, which can but guess at colour and shape together, "
              "finds a target by its colour in at least .15 more cases",
              # Not only of bags that find by colour: that they do is all that is open here.
              parts.mean("search", BAG, parts.interaction(many)), at_least=0.15),
        Claim("search: more so among more objects",
              f"That difference grows from {few} objects to {many}, where a bag does better than "
              f"guess among {few}",
              parts.where_above(
                  parts.mean("search", BAG, parts.growth, only=(by_colour,)), "search", BAG,
                  parts.found("conjunctive", few), parts.CHANCE,
                  f"A bag has nothing to lose: its share of conjunctions among {few} objects",
              ), above=0.0),
        Claim("search: slots lose half as much",
              "The difference grows with each object at most half as fast for slots that find .9 "
              f"of conjunctions among {few} (slots minus half the bag, where the bag's grows)",
              parts.where_above(
                  parts.half_as_fast("search", BAG, SLOTS, parts.slope, slopes), "search", BAG,
                  parts.slope, 0.0, "There is nothing to halve: the bag's growth by object",
                  only=slopes[BAG],
              ), at_most=0.0),
        Claim("search: convolution loses among more objects",
              f"From {few} objects to {many} the difference grows for plain convolution that finds "
              f".9 of conjunctions among {few}",
              parts.mean("search", CONV, parts.growth, only=slopes[CONV]), above=0.0),
        Claim("search: slots lose half as much as convolution",
              "It grows with each object at most half as fast for slots as for plain convolution, "
              f"both finding .9 of conjunctions among {few} (slots minus half convolution, where "
              "that of convolution grows)",
              parts.where_above(
                  parts.half_as_fast("search", CONV, SLOTS, parts.slope, slopes), "search", CONV,
                  parts.slope, 0.0,
                  "There is nothing to halve: the growth by object of plain convolution",
                  only=slopes[CONV],
              ), at_most=0.0),
    ]  # fmt: skip


def limits(grid: Grid) -> list[Claim]:
    """Where plain convolution fails; a refuted one states up to where it does not."""
    return [
        Claim("limit: objects",
              f"Of {max(grid.objects)} objects, plain convolution reports at most .9 right",
              parts.mean("report", CONV, parts.reported(max(grid.objects))), at_most=0.9),
        Claim("limit: set size",
              f"Among {max(grid.tested)} objects, plain convolution finds at most .9 of "
              f"conjunctions, having found more among {min(grid.tested)}",
              parts.mean("search", CONV, parts.found("conjunctive", max(grid.tested)),
                         only=(parts.binds_among(min(grid.tested)),)), at_most=0.9),
        Claim("limit: held-out pairs",
              f"With {max(grid.held_out):.3g} of the pairs held out, plain convolution of width "
              f"{max(grid.width)} is right about at most .9 of these",
              parts.mean("swap", CONV, parts.unseen, width=max(grid.width),
                         held_out=max(grid.held_out)), at_most=0.9),
    ]  # fmt: skip


def segregation() -> list[Claim]:
    return [
        Claim("segregation: slots find the objects",
              "Without labels, the parts of slots are the objects: foreground ARI of at least .90 "
              "(the median over pictures)",
              parts.mean("segregation", SLOTS, parts.median_ari), at_least=0.9),
        Claim("segregation: channels do not",
              "In a convolutional autoencoder whose channels stand for slots it is at most .50",
              parts.mean("segregation", CHANNELS, parts.median_ari), at_most=0.5),
        Claim("segregation: more than colour",
              "The mean over pictures is above what sorting pixels by colour gives",
              parts.mean("segregation", SLOTS, parts.beyond_colour), above=0.0),
    ]  # fmt: skip
