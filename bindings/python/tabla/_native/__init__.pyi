"""The C ABI in cffi. `include/tabla.h` has the types and the contract."""

from typing import Any

ffi: Any
"""`cffi.FFI` with the header's types."""

lib: Any
"""The functions `tabla_*` and the constants `TABLA_*`."""
