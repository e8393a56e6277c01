"""One page in a memory file that two processes map."""

import ctypes
import mmap
import os

from hostflag_native.layout import PAGE_BYTES


class SharedPage:
    """A page of a memory file, mapped shared into this process at `address`.

    The mapping lasts until close(); no HostFlagCore may use it after that.
    """

    def __init__(self, descriptor: int | None = None) -> None:
        """Maps the file of a descriptor, or a new one, zeroed."""
        if descriptor is None:
            descriptor = os.memfd_create("hostflag-page", os.MFD_CLOEXEC)
            os.truncate(descriptor, PAGE_BYTES)
        self.descriptor = descriptor
        self._mapping = mmap.mmap(descriptor, PAGE_BYTES, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        self._first_byte = ctypes.c_char.from_buffer(self._mapping)
        self.address = ctypes.addressof(self._first_byte)

    def close(self) -> None:
        """Unmaps the page and closes the descriptor."""
        del self._first_byte
        self._mapping.close()
        os.close(self.descriptor)
