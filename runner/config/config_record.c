/* config_record.c -- config.json of a log folder, taken as a config.
 *
 * A run records {"key": {"value": v, "source": "where"}, ...} for all keys of the program. What the
 * user had set is set again. A default counts where the program's default has changed since: the
 * run is to be the same. */
#include "config_impl.h"
#include <string.h>

bool rd_config_is_record(const json_t *root)
{
    const char *key;
    json_t *v;
    int n = 0;
    json_object_foreach((json_t *)(uintptr_t)root, key, v)
    {
        if (json_is_string(v) && (!strcmp(key, "$schema") || !strcmp(key, "base"))) continue;
        if (!json_is_object(v) || json_object_size(v) != 2 || !json_object_get(v, "value") ||
            !json_is_string(json_object_get(v, "source")))
            return false;
        n++;
    }
    return n > 0;
}

rd_recorded rd_config_recorded(const json_t *entry, const json_t **value)
{
    const char *source = json_string_value(json_object_get(entry, "source"));
    *value = json_object_get(entry, "value");
    if (!*value || !source || json_is_null(*value) || !strcmp(source, "forced"))
        return RD_RECORDED_NOT;
    return strcmp(source, "default") != 0 ? RD_RECORDED_SET : RD_RECORDED_DEFAULT;
}
