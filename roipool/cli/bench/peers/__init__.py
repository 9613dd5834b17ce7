"""Other libraries' operators, made ready to be timed.

This package is also a program: ``python peers NAME THREADS`` serves one peer to another process. It
therefore needs nothing but NumPy and that peer, and keeps to what Python 3.8 understands, because
some peers live in old environments. To add a peer, write its class in `libraries` and list it in
`PEERS`.
"""

from .libraries import PEERS, Absent, Peer
from .serving import opened, prepared, timed
from .task import Level, Task, load, save

__all__ = [
    "PEERS",
    "Absent",
    "Level",
    "Peer",
    "Task",
    "load",
    "opened",
    "prepared",
    "save",
    "timed",
]
