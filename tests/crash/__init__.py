"""The crash matrix: real flows over real servers, killed at named places and at random ones, and judged.

supervisor   `millrace run` as a process that can be stopped at a place, killed, and ended
servers      the servers of a project: killed, started again, frozen, without room on their disk
mill         the app that is run, what it is fed, and all that it wrote
oracles      what must hold of that, and what may not be left behind
cells        which deaths there are
matrix       chains of them; `make crash`
"""
