"""How the tables of a FROM are joined: conditions go as far down as they can, and tables meet by equalities.

What a join keeps is what its sides hold, so a filter before it is state that is not kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from millrace.views.terms import Call, Ref, Term, Value, all_of, columns, conjuncts, replaced
from millrace.views.tree import (
    Filtered,
    First,
    Found,
    Grouped,
    Joined,
    Key,
    Measured,
    Node,
    Projected,
    Shared,
    names,
    row,
)


def arranged(items: Sequence[Node], conditions: Sequence[Term]) -> Node:
    """All items joined, of which the conditions are true. Taken in their order, but one that an equality leads to comes
    before one that none does."""
    left = list(conditions)
    waiting: list[Node] = []
    for item in items:
        own = [each for each in left if columns(each) and columns(each) <= names(item)]
        left = [each for each in left if each not in own]
        waiting.append(pushed(item, own))
    tree = waiting.pop(0)
    while waiting:
        found = next((item for item in waiting if paired(left, names(tree), names(item))[0]), waiting[0])
        waiting.remove(found)
        now = [each for each in left if columns(each) <= names(tree) | names(found)]
        left = [each for each in left if each not in now]
        keys, rest = paired(now, names(tree), names(found))
        tree = Joined(tree, found, "inner", keys, rest)
    return filtered(tree, left)


def filtered(tree: Node, conditions: Sequence[Term]) -> Node:
    condition = all_of(list(conditions))
    return tree if condition is None else Filtered(tree, condition)


def paired(
    conditions: Sequence[Term], left: frozenset[str], right: frozenset[str]
) -> tuple[tuple[Key, ...], tuple[Term, ...]]:
    """The equalities between two sides, and the conditions that are something else."""
    keys: list[Key] = []
    rest: list[Term] = []
    for each in conditions:
        key = _key(each, left, right)
        if key is None:
            rest.append(each)
        elif key not in keys:
            keys.append(key)
    return tuple(keys), tuple(rest)


def _key(condition: Term, left: frozenset[str], right: frozenset[str]) -> Key | None:
    if not isinstance(condition, Call) or condition.name not in ("=", "same"):
        return None
    one, other = condition.args
    if columns(one) and columns(one) <= right:
        one, other = other, one
    if not (columns(one) and columns(one) <= left and columns(other) and columns(other) <= right):
        return None
    if one.type.is_wide:
        one, other = Call("key", (one,), one.type), Call("key", (other,), other.type)
    # As a row a value is never null, so that nulls meet.
    return (one, other) if condition.name == "=" else (row((one,)), row((other,)))


def grouped(
    tree: Node, by: tuple[tuple[str, Term], ...], measures: Sequence[Measured], fresh: Callable[[str], str]
) -> Node:
    """Groups of rows. An array keeps nulls, so one of some rows alone is of groups of its own, which then stand beside
    the others; where there are no such rows it is null."""
    told = tuple(each for each in measures if each.only is None)
    conditions = list(dict.fromkeys(each.only for each in measures if each.only is not None))
    if not conditions:
        return Grouped(tree, by, told)
    shared = Shared(tree)
    found: Node | None = Grouped(shared, by, told) if by or told else None
    for only in conditions:
        own = tuple((fresh("g"), term) for _, term in by)
        some = tuple(replace(each, only=None) for each in measures if each.only == only)
        right = Grouped(filtered(shared, [only]), own, some)
        keys = tuple(
            (row((Ref(mine, term.type),)), row((Ref(other, term.type),)))
            for (mine, term), (other, _) in zip(by, own, strict=True)
        )
        found = right if found is None else Joined(found, right, "left" if by else "inner", keys, ())
    assert found is not None
    return found


def pushed(node: Node, conditions: Sequence[Term]) -> Node:
    """A node of whose rows the conditions are true."""
    if not conditions:
        return node
    if isinstance(node, Filtered):
        return pushed(node.input, [node.condition, *conditions])
    if isinstance(node, Projected):
        by = dict(node.fields)
        return replace(node, input=pushed(node.input, [replaced(each, by) for each in conditions]))
    if isinstance(node, Found):
        return replace(node, left=pushed(node.left, conditions))
    if isinstance(node, Joined):
        return _into_join(node, conditions)
    if isinstance(node, First) and node.number is not None and node.count is None:
        return _limited(node, conditions)
    return filtered(node, conditions)


def _into_join(node: Joined, conditions: Sequence[Term]) -> Node:
    left = [each for each in conditions if node.how != "full" and columns(each) <= names(node.left) and columns(each)]
    right = [
        each
        for each in conditions
        if node.how == "inner" and each not in left and columns(each) and columns(each) <= names(node.right)
    ]
    over = [each for each in conditions if each not in left and each not in right]
    found = replace(node, left=pushed(node.left, left), right=pushed(node.right, right))
    if found.how == "inner":
        keys, rest = paired(over, names(node.left), names(node.right))
        return replace(found, on=(*found.on, *keys), rest=(*found.rest, *rest))
    return filtered(found, over)


def _limited(node: First, conditions: Sequence[Term]) -> Node:
    """`row_number() OVER (…) <= n` is what the first rows of each group are asked for by."""
    # BETWEEN is two conditions.
    conditions = [part for each in conditions for part in conjuncts(each)]
    counts = {each: count for each in conditions if (count := _most(each, node.number or "")) is not None}
    if not counts:
        return filtered(node, conditions)
    least = min(counts.values())
    return filtered(replace(node, count=least), [each for each in conditions if each not in counts])


def _most(condition: Term, number: str) -> int | None:
    if not isinstance(condition, Call) or len(condition.args) != 2:
        return None
    left, right = condition.args
    name = condition.name
    if isinstance(left, Value):
        left, right, name = right, left, {"<": ">", "<=": ">=", ">": "<", ">=": "<="}.get(name, name)
    if not (isinstance(left, Ref) and left.column == number and isinstance(right, Value) and right.type.is_whole):
        return None
    if right.value is None or right.value < 1:
        return None
    if name == "=" and right.value == 1:
        return 1
    return right.value if name == "<=" else right.value - 1 if name == "<" and right.value > 1 else None


def found(left: Node, right: Node, keys: Sequence[Key], rest: Sequence[Term], anti: bool) -> Node:
    """Conditions over the right side alone are a filter of it."""
    own = [each for each in rest if columns(each) and columns(each) <= names(right)]
    both = tuple(each for each in rest if each not in own)
    return Found(left, pushed(right, own), tuple(keys), both, anti)
