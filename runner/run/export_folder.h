/* export_folder.h -- export of a model as a folder that Hugging Face's transformers opens, or of
 * its adapters as a folder that PEFT opens. */
#ifndef RD_RUN_EXPORT_FOLDER_H
#define RD_RUN_EXPORT_FOLDER_H

#include "run.h"

/* Does --format=safetensors write a folder? It does where the model has a form there, unless
 * --export_out ends in ".safetensors". */
bool export_folder_wanted(const rd_run *r);

/* Is --format=peft given? */
bool export_adapter_wanted(const rd_run *r);

/* Writes config.json, model.safetensors, generation_config.json and the files of the tokenizer to a
 * folder, which appears whole or not at all. metadata: texts for model.safetensors. Rank 0 only. */
rd_code export_folder(rd_run *r, const char *path, const json_t *metadata, rd_status *st);
/* Does the same with adapter_config.json and adapter_model.safetensors. */
rd_code export_adapter(rd_run *r, const char *path, const json_t *metadata, rd_status *st);

#endif
