/* The cases of text.c in a program at fixed low addresses. */
#include "text.c"
