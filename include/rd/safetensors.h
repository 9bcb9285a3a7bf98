/* safetensors.h -- reads and writes safetensors files, the form in which the Hugging Face libraries
 * keep weights.
 *
 * A file has 8 bytes, the length n of the header, little endian; n bytes of JSON; and the data of
 * all arrays, one after the other. The header names each array with its type, its shape and the
 * place of its bytes. It may hold texts under "__metadata__". */
#ifndef RD_SAFETENSORS_H
#define RD_SAFETENSORS_H
#include "rd/npz.h"
#include <jansson.h>
RD_C_BEGIN

/* Writes n arrays into a new file, atomically (rd_tmpfile). The data begins at a multiple of 8
 * bytes. metadata: a borrowed object of strings, or NULL. Types: those of rd_array, and "bf16". The
 * caller has made sure that the file does not exist, or may be replaced. RD_EBUG: an array that
 * does not fit its type and shape, a name twice. */
rd_code rd_safetensors_write(const char *path, const rd_array *a, int n, const json_t *metadata,
                             rd_status *st);

typedef struct rd_safetensors rd_safetensors;
/* Opens a file and checks its header against its size. RD_ECKPT says what is wrong, and at which
 * byte: a header that is too long, no JSON or has an entry twice; a type that cannot be read; a
 * shape or a place that does not fit the others; bytes of no array. Data is not read. The caller
 * owns *out. */
rd_code rd_safetensors_new(const char *path, rd_safetensors **out, rd_status *st);
/* Does the same for n bytes in memory, borrowed until rd_safetensors_free. */
rd_code rd_safetensors_new_mem(const void *p, size_t n, rd_safetensors **out, rd_status *st);
void rd_safetensors_free(rd_safetensors *s); /* NULL is fine */
/* Returns the number of arrays. */
int rd_safetensors_n(const rd_safetensors *s);
/* Returns array i in the order of the data, or the array of this name; NULL: there is none. Its
 * data is NULL. The type of bfloat16 is "bf16". Borrowed until rd_safetensors_free. */
const rd_array *rd_safetensors_at(const rd_safetensors *s, int i);
const rd_array *rd_safetensors_find(const rd_safetensors *s, const char *name);
/* Returns the texts of "__metadata__", borrowed; NULL: there are none. */
const json_t *rd_safetensors_metadata(const rd_safetensors *s);
/* Reads the data of array i: a->bytes bytes. RD_ECKPT: the file has become shorter. */
rd_code rd_safetensors_read(const rd_safetensors *s, int i, void *out, rd_status *st);

RD_C_END
#endif
