/* The header of the installed library, found by pkg-config or in the compiler's default path. */
#include <tabla.h>
