"""For how long a flow in real time has epochs shorter than its own: in that time nothing of it is to be measured."""

from __future__ import annotations

from millrace.engine import realtime

SHORT_EPOCHS = 40  # as in `FirstEpochs.java`
PAUSE_S = 0.5  # at the ends of the first epochs


def short_s(epoch_s: float) -> float:
    length_s = realtime.FIRST_EPOCH_MS / 1_000
    whole_s = SHORT_EPOCHS * (length_s + PAUSE_S)
    while 0 < 2 * length_s < epoch_s:
        length_s *= 2
        whole_s += length_s + PAUSE_S
    return whole_s
