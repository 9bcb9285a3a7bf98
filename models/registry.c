/* registry.c -- finds models by name. make writes the list from the definitions in models/. */
#include "rd/model.h"

#include <strings.h>

#define RD_ENTRY(name) extern const rd_model_def rd_model_##name;
#include "models.inc"
#undef RD_ENTRY

#define RD_ENTRY(name) &rd_model_##name,
static const rd_model_def *const models[] = {
#include "models.inc"
    NULL};
#undef RD_ENTRY

const rd_model_def *const *rd_model_defs(int *n)
{
    *n = (int)(sizeof models / sizeof models[0]) - 1;
    return models;
}

const rd_model_def *rd_model_find(const char *name)
{
    for (int i = 0; models[i]; i++)
        if (strcasecmp(models[i]->name, name) == 0) return models[i];
    return NULL;
}
