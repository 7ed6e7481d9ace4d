"""PostgreSQL's numeric in plain Python: at which digit a quotient is rounded (`select_div_scale` in its numeric.c)."""

from __future__ import annotations

from decimal import ROUND_DOWN, ROUND_HALF_UP, Decimal, localcontext

# Of a quotient at least so many digits are significant, counted in groups of four.
_SIGNIFICANT, _GROUP, _MOST = 16, 4, 1_000
_PRECISION = 3_000


class NoAnswer(Exception):
    """Where PostgreSQL says an error."""


class Unsure(NoAnswer):
    """Where it is not known what PostgreSQL says."""


def scale_of(value: Decimal) -> int:
    return max(0, -int(value.as_tuple().exponent))


def _first(value: Decimal) -> tuple[int, int]:
    """The place of the first group of four digits that is not zero, and those digits."""
    if not value:
        return 0, 0
    weight = value.adjusted() // _GROUP
    with localcontext(prec=_PRECISION):
        digits = abs(value).scaleb(-weight * _GROUP)
        return weight, int(digits.to_integral_value(ROUND_DOWN))


def division_scale(left: Decimal, right: Decimal) -> int:
    weight, digits = _first(left)
    other_weight, other_digits = _first(right)
    quotient = weight - other_weight - (1 if digits <= other_digits else 0)
    wanted = _SIGNIFICANT - quotient * _GROUP
    return min(max(wanted, scale_of(left), scale_of(right), 0), _MOST)


def rounded(left: Decimal, right: Decimal, scale: int) -> Decimal:
    with localcontext(prec=_PRECISION):
        # Once, and exactly: a remainder decides, not a quotient that is rounded already.
        number, rest = divmod(abs(left).scaleb(scale), abs(right))
        number += 1 if rest * 2 >= abs(right) else 0
        found = number.to_integral_value().scaleb(-scale)
        return -found if (left < 0) != (right < 0) and found else found


def spread(number: int, total: Decimal, squares: Decimal, sample: bool, root: bool) -> Decimal | None:
    """Variance or standard deviation, of how many, their sum and that of their squares."""
    if number <= (1 if sample else 0):
        return None
    with localcontext(prec=_PRECISION):
        over = squares * number - total * total
        if over <= 0:
            return Decimal(0)
        under = Decimal(number * (number - 1 if sample else number))
        scale = division_scale(over, under)
        found = rounded(over, under, scale)
        return found.sqrt().quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP) if root else found
