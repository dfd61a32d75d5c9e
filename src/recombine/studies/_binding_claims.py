"""What the study of binding claims, and the conditions under which a claim may speak."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from recombine.lab.study import DIFFERENCE, SHARE, Claim
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
              parts.mean("swap", BAG, parts.seen), at_least=0.47, at_most=0.53, within=SHARE),
        Claim("swap: slots bind",
              f"Slots of width {largest} are right in at least .95 of them (trained pairs)",
              parts.mean("swap", SLOTS, parts.seen, able=False, width=largest, held_out=least),
              at_least=0.95, within=SHARE),
        Claim("swap: plain convolution binds two objects",
              f"So is plain convolution of width {largest}: two objects are no difficulty",
              parts.mean("swap", CONV, parts.seen, able=False, width=largest, held_out=least),
              at_least=0.95, within=SHARE),
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
                      parts.paired("swap", (model, narrow), (model, wide), parts.at_matched,
                                   only={model: (parts.SEEN_CLOSELY,)}),
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
    return [
        *found,
        Claim("held-out pairs: slots carry over more",
              f"At width {large}, slots are right about more held-out pairs than plain convolution",
              # Not the gap: who learnt trained pairs less well would have a smaller one.
              parts.paired("swap", (CONV, home), (SLOTS, home), parts.unseen), above=0.0,
              within=DIFFERENCE),
        Claim("held-out pairs: slots carry over more, at equal size",
              "So they are, compared with plain convolution of the width that has most nearly as "
              "many parameters",
              parts.as_large("swap", CONV, (SLOTS, home), parts.unseen), above=0.0),
    ]  # fmt: skip


def reports(grid: Grid) -> list[Claim]:
    width = max(grid.width)
    bag, slots = ((model, {"width": width}) for model in (BAG, SLOTS))
    return [
        Claim("report: the bag swaps features",
              "A bag reports at least twice as many conjunctions of features that are there but "
              "not together as slots do (an object; bag minus twice slots), where it reports any",
              parts.where_above(
                  parts.against_double("report", bag, slots, parts.conjunctions), "report", bag,
                  parts.conjunctions, 0.0,
                  "There is nothing to compare: the bag's number of conjunctions an object",
              ), at_least=0.0),
        Claim("report: its errors are conjunctions",
              "Among wrong things the share of conjunctions is at least twice that of slots (bag "
              "minus twice slots), where the bag has any",
              parts.where_above(
                  parts.against_double("report", bag, slots, parts.conjunction_share), "report",
                  bag, parts.conjunction_share, 0.0,
                  "There is nothing to compare: the bag's share of conjunctions",
              ), at_least=0.0),
        Claim("report: more than guessing",
              "That share of the bag is above what guessing both features of a wrong thing gives "
              "on the same scenes",
              parts.mean("report", BAG, parts.beyond_guessing, width=width), above=0.0),
        *scaled_reports(grid),
    ]  # fmt: skip


def scaled_reports(grid: Grid) -> list[Claim]:
    """Does width help those who can bind to report more, and pairs that were never trained?"""
    small, large, most = min(grid.width), max(grid.width), max(grid.objects)
    found = []
    for model, name in ((CONV, "convolution"), (SLOTS, "slots")) if small < large else ():
        narrow, wide = ((model, {"width": w}) for w in (small, large))
        found += [
            Claim(f"report: width helps {name}",
                  f"Of {most} objects, more are reported right at width {large} than at {small}",
                  # What they learnt is the question: those that learnt little count.
                  parts.paired("report", narrow, wide, parts.reported(most), able=False),
                  above=0.0),
            Claim(f"report: width helps {name} with held-out pairs",
                  "A held-out pair among trained ones is reported in more scenes at width "
                  f"{large} than at {small}",
                  parts.paired("report", narrow, wide, parts.unseen_pair), above=0.0),
        ]  # fmt: skip
    return found


def search(grid: Grid) -> list[Claim]:
    """What search for a colour and a shape costs: as published, and where counts do not tell."""
    few, many, width = min(grid.tested), max(grid.tested), max(grid.search_width)
    bag, conv, slots = ((model, {"width": width}) for model in (BAG, CONV, SLOTS))
    by_colour = parts.finds_among(many, parts.ROOM)
    # Who loses search by colour too would have a small difference for that alone.
    whole = parts.finds_among(many, parts.LEARNT)
    counted = {BAG: (by_colour,), SLOTS: (whole, parts.binds_among(few, "published"))}
    bound = {CONV: (by_colour, parts.binds_among(few)), SLOTS: (whole, parts.binds_among(few))}
    published = functools.partial(parts.interaction, "published")
    balanced = functools.partial(parts.interaction, "conjunctive")
    return [
        Claim("search: conjunctions cost the bag",
              f"Among {many} objects, a bag finds a target by its colour in at least .15 more "
              "cases than by colour and shape together, as published",
              # Not only of bags that find by colour among so many: that they do is open, too.
              parts.mean("search", BAG, published(f"n{many}"), width=width), at_least=0.15),
        Claim("search: more so among more objects",
              f"That difference grows from {few} objects to {many}, where a bag does better than "
              f"guess among {few}",
              parts.where_above(
                  parts.mean("search", BAG, published("growth"), only=counted[BAG], width=width),
                  "search", bag, parts.found("published", few), parts.CHANCE,
                  f"A bag has nothing to lose: its share of published ones among {few} objects",
              ), above=0.0),
        Claim("search: slots lose half as much",
              "The difference grows with each object at most half as fast for slots that find .9 "
              f"of published ones among {few} (slots minus half the bag, where the bag's grows)",
              parts.where_above(
                  parts.half_as_fast("search", bag, slots, published("slope"), counted), "search",
                  bag, published("slope"), 0.0,
                  "There is nothing to halve: the bag's growth by object", only=counted[BAG],
              ), at_most=0.0),
        Claim("search: a bag guesses where counts do not tell",
              "With as many objects of each colour and of each shape in scenes with a target as "
              "without, a bag is right in .50 of the cases, within .03, over all numbers of "
              "objects: so by construction, and a control of these scenes",
              parts.mean("search", BAG, parts.found_among_all("conjunctive"), width=width),
              at_least=0.47, at_most=0.53, within=SHARE),
        Claim("search: convolution loses among more objects",
              f"There, from {few} objects to {many}, the difference to search by colour grows for "
              f"plain convolution that finds .9 of conjunctions among {few}",
              parts.mean("search", CONV, balanced("growth"), only=bound[CONV], width=width),
              above=0.0),
        Claim("search: slots lose half as much as convolution",
              "It grows with each object at most half as fast for slots as for plain convolution, "
              f"both finding .9 of conjunctions among {few} (slots minus half convolution, where "
              "that of convolution grows)",
              parts.where_above(
                  parts.half_as_fast("search", conv, slots, balanced("slope"), bound), "search",
                  conv, balanced("slope"), 0.0,
                  "There is nothing to halve: the growth by object of plain convolution",
                  only=bound[CONV],
              ), at_most=0.0),
        *scaled_search(grid),
    ]  # fmt: skip


def scaled_search(grid: Grid) -> list[Claim]:
    small, large = min(grid.search_width), max(grid.search_width)
    return [
        Claim(f"search: width helps {name}",
              f"Where counts do not tell, more conjunctions are found at width {large} than at "
              f"{small}, over all numbers of objects",
              parts.paired("search", (model, {"width": small}), (model, {"width": large}),
                           parts.found_among_all("conjunctive")), above=0.0)
        for model, name in ((CONV, "convolution"), (SLOTS, "slots")) if small < large
    ]  # fmt: skip


def limits(grid: Grid) -> list[Claim]:
    """Where plain convolution fails; a refuted one states up to where it does not."""
    return [
        Claim("limit: objects",
              f"Of {max(grid.objects)} objects, plain convolution of width {max(grid.width)} "
              "reports at most .9 right",
              parts.mean("report", CONV, parts.reported(max(grid.objects)),
                         width=max(grid.width)), at_most=0.9, within=SHARE),
        Claim("limit: set size",
              f"Among {max(grid.tested)} objects, plain convolution of width "
              f"{max(grid.search_width)} finds at most .9 of conjunctions, having found more among "
              f"{min(grid.tested)}",
              parts.mean("search", CONV, parts.found("conjunctive", max(grid.tested)),
                         only=(parts.binds_among(min(grid.tested)),),
                         width=max(grid.search_width)), at_most=0.9, within=SHARE),
        Claim("limit: held-out pairs",
              f"With {max(grid.held_out):.3g} of the pairs held out, plain convolution of width "
              f"{max(grid.width)} is right about at most .9 of these",
              parts.mean("swap", CONV, parts.unseen, width=max(grid.width),
                         held_out=max(grid.held_out)), at_most=0.9, within=SHARE),
    ]  # fmt: skip


def segregation() -> list[Claim]:
    return [
        Claim("segregation: slots find the objects",
              "Without labels, the parts of slots are the objects: foreground ARI of at least .90 "
              "(the median over pictures)",
              parts.mean("segregation", SLOTS, parts.median_ari), at_least=0.9, within=DIFFERENCE),
        Claim("segregation: in the median network",
              "The same on average over pictures, in the median network",
              parts.median("segregation", SLOTS, parts.mean_ari, 0.9), at_least=0.9,
              within=DIFFERENCE),
        Claim("segregation: channels do not",
              "In a convolutional autoencoder whose channels stand for slots it is at most .50",
              parts.mean("segregation", CHANNELS, parts.median_ari), at_most=0.5,
              within=DIFFERENCE),
        Claim("segregation: more than colour",
              "The mean over pictures is above what sorting pixels by colour gives",
              parts.mean("segregation", SLOTS, parts.beyond_colour), above=0.0),
    ]  # fmt: skip
