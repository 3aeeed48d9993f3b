/* As patch, linked for fixed addresses. */
#include "patch.c"
