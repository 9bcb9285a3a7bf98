/* element.h -- types of the elements of a variable. */
#ifndef RD_ELEMENT_H
#define RD_ELEMENT_H

#include "rd/status.h"
#include <stddef.h>

RD_C_BEGIN

typedef enum rd_element { RD_FLOAT32, RD_BFLOAT16, RD_FLOAT16 } rd_element;

/* Returns the size of an element in bytes. */
static inline size_t rd_element_bytes(rd_element e)
{
    return e == RD_FLOAT32 ? 4 : 2;
}

RD_C_END
#endif
