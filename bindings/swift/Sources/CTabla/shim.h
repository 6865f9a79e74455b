/* The header of the installed library: pkg-config, or the compiler, knows where it is. */
#include <tabla.h>
