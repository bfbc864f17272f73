"""``syncbrok`` as the systemd unit confines it: ``python -m tests.support.broker.confined serve ...``. A filter of
system calls like the one that systemd makes of config/syncbrok.service stands before the program, and stays
(seccomp(2)). Where the unit's answers EPERM this one ends the process (SIGSYS): no refused call goes unnoticed."""

import ctypes
import errno
import os
import platform
import struct
import sys
from typing import Final

OPTIONS: Final = (
    "NoNewPrivileges=yes",
    "RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX",
    "MemoryDenyWriteExecute=yes",
    "SystemCallFilter=@system-service",
    "SystemCallFilter=~@privileged",
    "SystemCallErrorNumber=EPERM",
)
"""lines of the unit, of what this does as systemd does it"""

_ALLOWED: Final = (
    (0, 26), (28, 91), (95, 100), (102, 102), (104, 104), (106, 112), (114, 115), (118, 121), (123, 125), (127, 133),
    (135, 135), (137, 138), (140, 152), (157, 158), (160, 160), (162, 162), (186, 211), (213, 226), (228, 235),
    (237, 245), (247, 259), (261, 297), (299, 299), (302, 303), (306, 312), (314, 316), (318, 319), (322, 328),
    (332, 334), (424, 427), (434, 437), (439, 441), (449, 450),
)  # fmt: skip
"""first and last numbers of the system calls of x86-64 that are in @system-service and not in @privileged, as
``systemd-analyze syscall-filter`` of systemd 252 lists them"""
_KNOWN_MAX: Final = 450
"""the greatest number that this systemd knows; those above it are answered ENOSYS"""

_MMAP, _MPROTECT, _SHMAT, _SOCKET = 9, 10, 30, 41
_WRITE_AND_EXECUTE, _EXECUTE, _SHM_EXECUTE = 0x6, 0x4, 0x8000
_FAMILIES: Final = (1, 2, 10)  # AF_UNIX, AF_INET, AF_INET6

_LOAD, _AND, _EQUAL, _GREATER, _AT_LEAST, _ANSWER = 0x20, 0x54, 0x15, 0x25, 0x35, 0x06  # of classic BPF
_NUMBER_AT, _ARCHITECTURE_AT, _ARGUMENTS_AT = 0, 4, 16
_X86_64: Final = 0xC000003E
_ALLOW, _REFUSE, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_NO_NEW_PRIVILEGES, _SECCOMP, _FILTER = 38, 22, 2  # of prctl(2)

Instruction = tuple[int, int, int, int]
"""code, jump if true, jump if false, operand"""


def program() -> list[Instruction]:
    """The filter, as the system takes it."""
    refuse = (_ANSWER, 0, 0, _KILL)
    made: list[Instruction] = [
        (_LOAD, 0, 0, _ARCHITECTURE_AT),
        (_EQUAL, 1, 0, _X86_64),
        refuse,
        (_LOAD, 0, 0, _NUMBER_AT),
    ]
    for number, argument, bits in (
        (_MMAP, 2, _WRITE_AND_EXECUTE),
        (_MPROTECT, 2, _EXECUTE),
        (_SHMAT, 2, _SHM_EXECUTE),
    ):
        has_bits = [(_LOAD, 0, 0, _ARGUMENTS_AT + 8 * argument), (_AND, 0, 0, bits), (_EQUAL, 0, 1, bits), refuse]
        made += [(_EQUAL, 0, 5, number), *has_bits, (_ANSWER, 0, 0, _ALLOW)]
    family = [(_EQUAL, 0, 1, one) for one in _FAMILIES]
    made += [(_EQUAL, 0, 2 + 2 * len(family), _SOCKET), (_LOAD, 0, 0, _ARGUMENTS_AT)]
    for one in family:
        made += [one, (_ANSWER, 0, 0, _ALLOW)]
    made += [(_ANSWER, 0, 0, _REFUSE | errno.EAFNOSUPPORT), (_GREATER, 0, 1, _KNOWN_MAX)]
    made += [(_ANSWER, 0, 0, _REFUSE | errno.ENOSYS)]
    for first, last in _ALLOWED:
        made += [(_AT_LEAST, 0, 2, first), (_GREATER, 1, 0, last), (_ANSWER, 0, 0, _ALLOW)]
    return [*made, refuse]


def confine() -> None:
    """Put the filter before this process and all that it becomes."""
    assert platform.machine() == "x86_64", "the numbers are those of x86-64"
    code = b"".join(struct.pack("HBBI", *one) for one in program())
    held = ctypes.create_string_buffer(code, len(code))
    told = ctypes.create_string_buffer(struct.pack("H6xP", len(code) // 8, ctypes.addressof(held)))
    libc = ctypes.CDLL(None, use_errno=True)
    for arguments in ((_NO_NEW_PRIVILEGES, 1, 0, 0, 0), (_SECCOMP, _FILTER, ctypes.addressof(told), 0, 0)):
        if libc.prctl(arguments[0], *map(ctypes.c_ulong, arguments[1:])) != 0:
            raise OSError(ctypes.get_errno(), "prctl")


if __name__ == "__main__":
    confine()
    os.execv(sys.executable, [sys.executable, "-m", "syncbrok", *sys.argv[1:]])
