"""Limits that a process puts on itself before it runs code that a model wrote (Linux).

Resource limits bound CPU time, memory, file sizes and open files. Landlock (since kernel 5.13) leaves one
directory writable. A seccomp filter refuses sockets, signals to other processes and tracing. What the code
starts inherits all of them, and none can be taken back. Not stopped: reading what the user may read. For
hostile code put a container or a virtual machine around the whole reward service.
"""

import ctypes
import os
import platform
import resource
import struct
from pathlib import Path

_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446
_LANDLOCK_VERSION = 1
_WRITES = {1: 0x1FF2, 2: 0x3FF2, 3: 0x7FF2}
"""Access rights that write, create, remove, or link files, by version of Landlock."""
_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 38, 22, 2
_ALLOW, _EPERM = 0x7FFF0000, 0x00050001
_KILL = 0x80000000
_REFUSED = {
    "x86_64": (0xC000003E, (41, 53, 62, 101, 109, 112, 200, 234, 310, 311, 321, 424, 425, 434, 438)),
    "aarch64": (0xC00000B7, (198, 199, 117, 129, 130, 131, 154, 157, 270, 271, 280, 424, 425, 434, 438)),
}
"""Architecture token and numbers of: socket, socketpair, kill, tkill, tgkill, ptrace, setpgid, setsid (what
it starts stays in its group, which is killed at the end), process_vm_readv and _writev, bpf,
pidfd_send_signal, io_uring_setup, pidfd_open, pidfd_getfd."""


def confine(writable: Path, *, cpu_s: int, memory_bytes: int, file_bytes: int) -> None:
    """Limit this process and all that it starts, for ever.

    Args:
        writable: the only directory in which files may be written.
        cpu_s: CPU seconds; then the process is killed.
        memory_bytes: address space.
        file_bytes: size of any file written.

    Raises:
        OSError: this system cannot confine; nothing may be run then.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    limits = {
        resource.RLIMIT_CPU: cpu_s, resource.RLIMIT_AS: memory_bytes, resource.RLIMIT_FSIZE: file_bytes,
        resource.RLIMIT_NOFILE: 64, resource.RLIMIT_CORE: 0,
    }  # fmt: skip
    for limit, value in limits.items():
        resource.setrlimit(limit, (value, value))
    _call(libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    _write_only_in(libc, writable)
    _refuse_calls(libc)


def _write_only_in(libc: ctypes.CDLL, directory: Path) -> None:
    version = _call(libc.syscall(_LANDLOCK_CREATE, None, ctypes.c_size_t(0), _LANDLOCK_VERSION))
    rights = _WRITES[min(version, max(_WRITES))]
    handled = struct.pack("Q", rights)
    rules = _call(libc.syscall(_LANDLOCK_CREATE, handled, ctypes.c_size_t(len(handled)), 0))
    place = os.open(directory, os.O_PATH | os.O_DIRECTORY)
    beneath = struct.pack("=Qi", rights, place)
    _call(libc.syscall(_LANDLOCK_ADD, rules, 1, beneath, 0))
    _call(libc.syscall(_LANDLOCK_RESTRICT, rules, 0))
    os.close(place)
    os.close(rules)


def _refuse_calls(libc: ctypes.CDLL) -> None:
    """Load the filter: another architecture is killed, a refused call gets EPERM, all else goes on."""
    machine = platform.machine()
    if machine not in _REFUSED:
        raise OSError(f"no filter for {machine}")
    architecture, numbers = _REFUSED[machine]
    load, equal, give = 0x20, 0x15, 0x06
    program = [(load, 0, 0, 4), (equal, 1, 0, architecture), (give, 0, 0, _KILL), (load, 0, 0, 0)]
    program += [(equal, len(numbers) - place, 0, number) for place, number in enumerate(numbers)]
    program += [(give, 0, 0, _ALLOW), (give, 0, 0, _EPERM)]
    code = b"".join(struct.pack("HBBI", *line) for line in program)
    buffer = ctypes.create_string_buffer(code, len(code))
    header = struct.pack("HxxxxxxP", len(program), ctypes.addressof(buffer))
    _call(libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, header, 0, 0))


def _call(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
