/* weights_keys.h -- keys that come from the folder of the weights that a run begins with. */
#ifndef RD_WEIGHTS_KEYS_H
#define RD_WEIGHTS_KEYS_H

#include "rd/modes.h"

/* Collective. Puts the keys of the folder that init_from names (in eval and infer: the key
 * checkpoint, else init_from), if it is a folder of another program. Those of the user stay: one
 * that contradicts the folder is RD_EUSAGE, or a notice where it may differ. The names of model and
 * dataset have been looked up. */
rd_code weights_keys_put(rd_config *c, rd_comm *comm, const rd_cli *cli, rd_strbuf *notices,
                         rd_status *st);

#endif
