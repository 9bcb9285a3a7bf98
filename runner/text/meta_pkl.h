/* meta_pkl.h -- reads the meta.pkl of nanoGPT's data of characters: which id each character has. */
#ifndef RD_TEXT_META_PKL_H
#define RD_TEXT_META_PKL_H

#include "rd/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Returns whether the bytes begin as a pickle of protocol 2 or above. */
bool meta_pkl_is(const char *bytes, size_t n);

/* Reads the bytes of a meta.pkl. *code: code points by id, owned by the caller; *n_codes: their
 * number, at least 1. RD_EDATA: name, byte and reason. */
rd_code meta_pkl_read(const char *name, const char *bytes, size_t n, int32_t **code,
                      int32_t *n_codes, rd_status *st);

#endif
