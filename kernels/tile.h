// Matrix tiles. To be written with the prefill kernels; see docs/kernels.md.
#include "lily.h"
