"""The highest totals of groups of rows, block by block.

Rows come in blocks of 64. For each group with feasible rows in a block an *entry* has the highest
total there and the number of rows that reach it, without the score that the group adds. Where there
are few groups (*dense*), a group's number is the index of its entries; where there are more, a
block's entries come first, and ``entries`` is their number. Unused places hold group 0, ``LOW`` and
0 rows, so that a loop over places needs no branch.
"""

import numpy as np

from scheduling.engine.compiled.caching import inlined, inner
from scheduling.engine.compiled.layout import BLOCK, LOW
from scheduling.framework.arrays import Int16, Int32


@inner
def count_of(top: int, totals: Int32) -> int:
    """Return how many totals of a block are ``top``."""
    ties = np.int32(0)
    for at in range(BLOCK):
        ties += np.int32(totals[at] == top)
    return ties  # type: ignore[return-value]


@inner
def block_top(totals: Int32) -> tuple[int, int]:
    """Return the highest total of a block, and how many rows have it."""
    top = totals[0]
    for at in range(BLOCK):
        top = max(top, totals[at])
    return top, count_of(top, totals)


@inner
def top_of_group(totals: Int32, of: Int16, number: int) -> tuple[int, int]:
    """Return the highest total of a group in a block, and how many rows have it."""
    top = np.int32(LOW)
    for at in range(BLOCK):
        found = totals[at] if of[at] == number else np.int32(LOW)
        top = max(top, found)
    ties = np.int32(0)
    if top != LOW:
        for at in range(BLOCK):
            ties += np.int32((of[at] == number) & (totals[at] == top))
    return top, ties  # type: ignore[return-value]


@inlined
def add_row(
    c: int, dense: int, block: int, number: int, total: int, entries: Int32, groups: Int16,
    tops: Int32, ties: Int32,
) -> int:  # fmt: skip
    """Add a row of score ``total`` to its group's entry; return one more than the entry's place.

    A block of rows keeps one entry for each group ``number``: the highest total and how many rows
    have it. With ``dense`` the entry's place is the group's number.
    """
    at = int(np.int64(number))
    if not dense:
        at = int(np.int64(entries[c, block]))
        for other in range(entries[c, block]):
            if groups[c, other, block] == number:
                at = int(np.int64(other))
                break
        if at == entries[c, block]:
            groups[c, at, block] = number
            entries[c, block] += 1
    if total > tops[c, at, block]:
        tops[c, at, block] = total
        ties[c, at, block] = 1
    elif total == tops[c, at, block]:
        ties[c, at, block] += 1
    return at + 1


@inlined
def remove_row(
    c: int, dense: int, block: int, number: int, total: int, totals: Int32, of: Int16,
    entries: Int32, groups: Int16, tops: Int32, ties: Int32,
) -> None:  # fmt: skip
    """Remove a row of score ``total`` from its group's entry in the block.

    The caller has set its place in ``totals`` to LOW already.
    """
    at = int(np.int64(number))
    if not dense:
        for other in range(entries[c, block]):
            if groups[c, other, block] == number:
                at = int(np.int64(other))
                break
    if total == tops[c, at, block]:
        ties[c, at, block] -= 1
        if ties[c, at, block] == 0:
            begin = block * BLOCK
            top, alike = top_of_group(
                totals[begin : begin + BLOCK], of[begin : begin + BLOCK], number
            )
            tops[c, at, block] = top
            ties[c, at, block] = alike
            if alike == 0 and not dense:
                last = entries[c, block] - 1
                groups[c, at, block] = groups[c, last, block]
                tops[c, at, block] = tops[c, last, block]
                ties[c, at, block] = ties[c, last, block]
                groups[c, last, block] = 0
                tops[c, last, block] = LOW
                ties[c, last, block] = 0
                entries[c, block] = last


@inner
def index(
    c: int, dense: int, widest: int, totals: Int32, of: Int16, entries: Int32, groups: Int16,
    tops: Int32, ties: Int32, sizes: Int32,
) -> int:  # fmt: skip
    """Rebuild all entries of line ``c``, and count the feasible rows of each group in ``sizes``.

    Return the most places that a block uses; ``widest``: that number before.
    """
    entries[c] = 0
    groups[c, :widest] = 0
    tops[c, :widest] = LOW
    ties[c, :widest] = 0
    sizes[:] = 0
    used = int(np.int64(0))
    for row in range(len(totals)):
        total = int(np.int64(totals[row]))
        if total == LOW:
            continue
        number = int(np.int64(of[row]))
        sizes[number] += 1
        place = add_row(c, dense, row // BLOCK, number, total, entries, groups, tops, ties)
        used = max(used, place)
    return used


@inner
def survey_place(more: int, tops: Int32, ties: Int32, highest: Int32, tied: Int32) -> None:
    """Do what ``survey`` does, for a place whose entries all belong to one group."""
    if more == LOW:
        return
    for block in range(len(highest)):
        total = tops[block] + more
        here = ties[block]
        best, known = highest[block], tied[block]
        alike = known + here if total == best else known
        tied[block] = here if total > best else alike
        highest[block] = max(best, total)


@inner
def survey(
    dense: int, widest: int, groups: Int16, tops: Int32, ties: Int32, offset: Int32,
    highest: Int32, tied: Int32,
) -> None:  # fmt: skip
    """Set the highest total of each block and its number of rows; ``offset``: what a group adds."""
    highest[:] = LOW
    tied[:] = 0
    for at in range(widest):
        if dense:
            survey_place(offset[at], tops[at], ties[at], highest, tied)
            continue
        for block in range(len(highest)):
            total = tops[at, block] + offset[groups[at, block] & 0x7FFF]
            here = ties[at, block]
            best, known = highest[block], tied[block]
            alike = known + here if total == best else known
            tied[block] = here if total > best else alike
            highest[block] = max(best, total)


@inner
def write_out(totals: Int32, of: Int16, offset: Int32, out: Int32) -> None:
    """Write into ``out`` the totals of a block's rows, with what their groups add."""
    for at in range(BLOCK):
        more = offset[of[at] & 0x7FFF]
        out[at] = totals[at] + more if totals[at] != LOW else np.int32(LOW)


@inner
def patch(
    base: int, excepted: Int32, size: Int32, of: Int16, totals: Int32, offset: Int32,
    highest: Int32, tied: Int32, patch_of: Int32, patches: Int32, patched: Int32,
) -> int:  # fmt: skip
    """Write out the blocks with excepted rows, which are groups of their own; return their number.

    Args:
        base: number of groups without those of excepted rows.
        excepted: the rows.
        size: feasible rows of each group; 0 for an excepted row that is not feasible.
        of: the group that each row would belong to.
        totals: of all rows.
        offset: what each group adds.
        highest: highest total of each block; is updated.
        tied: rows with that total, of each block; is updated.
        patch_of: index of each block in ``patches``; -1 on entry.
        patches: output, (blocks, BLOCK): totals of the blocks.
        patched: output: the numbers of these blocks.
    """
    made = 0
    for number in range(len(excepted)):
        if size[base + number] == 0:
            continue
        row = excepted[number]
        block = row // BLOCK
        place = patch_of[block]
        if place < 0:
            place = made
            patch_of[block] = place
            patched[place] = block
            made += 1
            begin = block * BLOCK
            write_out(
                totals[begin : begin + BLOCK], of[begin : begin + BLOCK], offset, patches[place]
            )
        patches[place, row % BLOCK] = totals[row] + offset[base + number]
    for place in range(made):
        highest[patched[place]], tied[patched[place]] = block_top(patches[place])
    return made
