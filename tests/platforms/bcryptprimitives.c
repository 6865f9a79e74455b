/* The function of `bcryptprimitives.dll` that Rust's standard library calls: wine 8.0 of Debian 12 lacks the file. */
#include <windows.h>

BOOLEAN WINAPI SystemFunction036(PVOID buffer, ULONG bytes); /* RtlGenRandom of advapi32 */

__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE buffer, SIZE_T bytes) {
    for (; bytes > 0; bytes--, buffer++) {
        if (!SystemFunction036(buffer, 1)) {
            return FALSE;
        }
    }
    return TRUE;
}
