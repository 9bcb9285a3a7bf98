/* weights_folder.h -- a folder of weights as Hugging Face's libraries keep it: config.json, and
 * model.safetensors, or several such files with model.safetensors.index.json. */
#ifndef RD_WEIGHTS_FOLDER_H
#define RD_WEIGHTS_FOLDER_H

#include "rd/npz.h"
#include "rd/strbuf.h"
#include <jansson.h>

RD_C_BEGIN

/* Finds out whether a path is such a folder: it has model.safetensors, or the index. */
rd_code rd_weights_there(const char *path, bool *there, rd_status *st);
/* Reads FOLDER/config.json, or another file of it that holds an object. RD_ECKPT: it is missing,
 * no JSON object, or has a key twice. The caller owns *out. */
rd_code rd_weights_json(const char *folder, const char *file, json_t **out, rd_status *st);

typedef struct rd_weights rd_weights;
/* Opens the files and checks their headers. RD_ECKPT: see rd_safetensors_new; an index that does
 * not fit its files. The caller owns *out. */
rd_code rd_weights_new(const char *folder, rd_weights **out, rd_status *st);
/* Does the same with one file of the folder. */
rd_code rd_weights_new_file(const char *folder, const char *file, rd_weights **out, rd_status *st);
void rd_weights_free(rd_weights *w); /* NULL is fine */
/* Returns the folder. Borrowed. */
const char *rd_weights_path(const rd_weights *w);
/* Returns the number of arrays. */
int rd_weights_n(const rd_weights *w);
/* Returns array i, in no order, or the array of this name; NULL: there is none. Its data is NULL.
 * Borrowed. */
const rd_array *rd_weights_at(const rd_weights *w, int i);
const rd_array *rd_weights_find(const rd_weights *w, const char *name);
/* Reads the array of this name, which exists, as n floats. Types: float32, float16, bfloat16,
 * float64. RD_ECKPT: another type or number of elements, or the file has become shorter. */
rd_code rd_weights_read(const rd_weights *w, const char *name, float *out, int64_t n,
                        rd_status *st);
/* Returns the value of a float16. */
float rd_weights_of_f16(uint16_t h);

RD_C_END
#endif
