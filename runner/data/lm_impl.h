/* lm_impl.h -- texts for language models: documents of files (lm_documents.c), tokens in memory or
 * in files (lm_tokens.c), multiple choice (lm_choices.c, lm_questions.c), the tokenizer of a run
 * (lm_tokenizer.c), the keys (lm_keys.c), and the tokens of a text (lm_ids.c), for
 * datasets/lm_text.c. */
#ifndef RD_LM_IMPL_H
#define RD_LM_IMPL_H

#include "rd/file.h"
#include "text_impl.h"

/* ---- documents (lm_documents.c) ---- */

/* What ends a document of a plain text. */
typedef enum rd_doc_unit { RD_DOC_FILE, RD_DOC_BLANK_LINE, RD_DOC_LINE } rd_doc_unit;

/* What the lines of prompts are. */
typedef enum rd_doc_form { RD_DOC_AUTO, RD_DOC_TEXT, RD_DOC_JSON } rd_doc_form;

typedef struct rd_doc_rules {
    rd_doc_unit unit;
    rd_lines_opts lines;
    bool prompts;     /* texts to continue: a line, or an object with "prompt" or "text" */
    rd_doc_form form; /* of prompts. Auto: by the name; of standard input by its first line */
} rd_doc_rules;

/* A part of a document. Long documents come in several parts, cut where it does not change the
 * tokens: before a line end behind a letter or digit. */
typedef struct rd_doc_part {
    const char *text; /* borrowed until the next call */
    size_t n;
    size_t prompt;   /* an example: its first bytes that are the prompt */
    bool is_example; /* the object has a prompt and a completion */
    bool ends;       /* the document ends here */
} rd_doc_part;

typedef struct rd_docs rd_docs;

/* Returns whether a name is that of JSON lines: it has ".jsonl" or ".ndjson". */
bool rd_docs_json(const char *name);
/* Returns whether a name is that of tokens: it ends in ".bin". */
bool rd_docs_bin(const char *name);
/* Appends what fetches or writes such a text to a failure that says that this file is not there. */
void rd_docs_fetcher(const char *name, rd_status *st);
/* Opens files as a list of documents. files and the rules are borrowed. The caller owns *out. */
rd_code rd_docs_new(const rd_text_files *files, const rd_doc_rules *rules, rd_docs **out,
                    rd_status *st);
/* Opens text in memory, borrowed. name: "-" for standard input. lines_before: for messages. */
rd_code rd_docs_new_mem(const char *name, const char *text, size_t n, int64_t lines_before,
                        const rd_doc_rules *rules, rd_docs **out, rd_status *st);
void rd_docs_free(rd_docs *d); /* NULL is fine */
/* Finds the next part. *more is false after the last one. A line that is no object with the right
 * strings is RD_EDATA with file and line. */
rd_code rd_docs_next(rd_docs *d, rd_doc_part *out, bool *more, rd_status *st);
/* Returns the form of the lines of prompts; auto: no line that is not blank was read. */
rd_doc_form rd_docs_form(const rd_docs *d);
/* Returns the number of the last line that was read, in its file. */
int64_t rd_docs_lines(const rd_docs *d);
/* Returns the number of bytes that were read, after decompression. */
int64_t rd_docs_bytes(const rd_docs *d);
/* Returns how much of the files' stored bytes is done. */
int64_t rd_docs_disk(const rd_docs *d);

/* ---- tokens (lm_tokens.c) ---- */

/* Tokens that follow each other: in memory, or in a file that is read where it is needed. */
typedef struct rd_token_list {
    char *name;      /* owned; of the file; NULL: in memory */
    rd_input *in;    /* owned */
    int64_t begin;   /* offset of the first token */
    const void *mem; /* borrowed; NULL: a file */
    bool wide;       /* uint32_t, else uint16_t; little-endian */
    int64_t n;
} rd_token_list;

void rd_token_list_release(rd_token_list *l);
/* Opens a file of tokens: those of llm.c (a header of 1024 bytes; version 1 with 16 bits, 7 with
 * 32), or of nanoGPT (no header). Those without a header have 16 bits, but 32 if V, the number of
 * tokens of the vocabulary, is above 65536, or if every second number of 16 bits at the beginning
 * is 0. RD_EDATA: file and reason. The caller owns *out, also after a failure. */
rd_code rd_token_list_open(const char *path, int64_t V, rd_token_list *out, rd_status *st);
/* Copies tokens [first, first + n). A token that is not below V is RD_EDATA. Thread-safe. */
rd_code rd_token_list_get(const rd_token_list *l, int64_t first, int64_t n, int64_t V, int32_t *out,
                          rd_status *st);

/* What was made of a text. Plain data. */
typedef struct rd_token_head {
    int64_t n;          /* number of tokens */
    int64_t n_docs;     /* number of documents */
    int64_t n_bytes;    /* number of bytes of text */
    int64_t n_examples; /* number of examples with a prompt; 0: the text is one stream */
    int64_t n_cut;      /* number of examples that were longer than seq_len + 1 tokens */
    uint64_t hash;      /* of the tokens */
    int32_t wide, in_file;
} rd_token_head;

/* Writes tokens to memory that ranks can share, or to a file that later runs find. */
typedef struct rd_token_writer {
    rd_token_head head;
    rd_block *mem;   /* borrowed; NULL: a file */
    rd_tmpfile file; /* of in_file */
    uint64_t key;    /* of the file: what the tokens were made of */
    uint8_t buf[1 << 16];
    size_t fill;
} rd_token_writer;
/* Begins. path NULL: in mem, an empty block. The caller releases *w after a failure, too. */
rd_code rd_token_writer_begin(rd_token_writer *w, bool wide, rd_block *mem, const char *path,
                              uint64_t key, rd_status *st);
rd_code rd_token_writer_add(rd_token_writer *w, const int32_t *ids, size_t n, rd_status *st);
rd_code rd_token_writer_end(rd_token_writer *w, rd_status *st);
void rd_token_writer_release(rd_token_writer *w);
/* Opens a file that a writer made of the same key. *found: it is there, and whole. */
rd_code rd_token_cache_open(const char *path, uint64_t key, rd_token_head *head, rd_token_list *out,
                            bool *found, rd_status *st);

/* ---- multiple choice (lm_choices.c, lm_questions.c) ---- */

/* The answers of all questions. Each is a sample: the context and the answer's tokens. */
typedef struct rd_choices {
    int64_t n, n_ids, n_questions;
    int64_t n_cut;     /* number of answers whose context was too long */
    int32_t *ids;      /* owned; [n_ids] */
    int64_t *first;    /* owned; [n + 1] first token of each answer's context */
    int32_t *prompt;   /* owned; [n] number of tokens of the context */
    int32_t *question; /* owned; [n] ascending */
    bool *right;       /* owned; [n] */
    int64_t cap, cap_ids;
} rd_choices;
/* Returns in *are whether the file begins as one of multiple choice of llm.c. */
rd_code rd_choices_are(const char *path, bool *are, rd_status *st);
/* Adds the questions of a file to c, which begins as zeros. most: most tokens of a sample. V:
 * number of tokens of the vocabulary. RD_EDATA: file, example and reason. The caller releases *c,
 * also after a failure. */
rd_code rd_choices_read(rd_choices *c, const char *path, int64_t most, int64_t V, rd_status *st);
void rd_choices_release(rd_choices *c);
/* Adds an answer to the question number n_questions: makes room for the tokens, which the caller
 * writes. most: most tokens of a sample, more than the answer has. Of a longer text the first *skip
 * tokens of the context are left out. *context: room for the others, then *answer for n_answer. */
rd_code rd_choices_add(rd_choices *c, int64_t n_context, int64_t n_answer, bool right, int64_t most,
                       int32_t **context, int32_t **answer, int64_t *skip, rd_status *st);
/* Returns in *are whether the first line of JSON lines is a question: it has "endings". */
rd_code rd_questions_are(const rd_text_files *files, const rd_lines_opts *lines, bool *are,
                         rd_status *st);
/* Adds the questions of JSON lines to c, as HellaSwag's authors publish them: "ctx", "endings" and
 * "label". most: as for rd_choices_read. RD_EDATA: file, line and reason. */
rd_code rd_questions_read(rd_choices *c, const rd_text_files *files, const rd_lines_opts *lines,
                          const rd_subword *tokenizer, int64_t most, rd_status *st);
/* Does the same for text in memory. name: for messages. */
rd_code rd_questions_read_mem(rd_choices *c, const char *name, const char *text, size_t n,
                              const rd_lines_opts *lines, const rd_subword *tokenizer, int64_t most,
                              rd_status *st);

/* ---- the tokenizer (lm_tokenizer.c) ---- */

typedef struct rd_tokenizer_args {
    rd_comm *comm;
    rd_log *log;                /* of rank 0; NULL: none */
    const char *logdir;         /* its folder "text" has the model; NULL: none */
    const char *weights;        /* file or log folder of weights from elsewhere; NULL: none */
    bool makes;                 /* trains a model if there is none */
    bool saves;                 /* ... and keeps it in logdir */
    const char *scheme, *model; /* model: a file; NULL: it is trained */
    const char *model_rule;     /* what the log folder keeps for its name; NULL: the name */
    int64_t size;
    const rd_text_files *files; /* the training text */
    rd_doc_rules docs;
} rd_tokenizer_args;
/* Finds out whether the log folder, or the folder of the weights, keeps a tokenizer. Either may be
 * NULL. */
rd_code rd_tokenizer_kept(const char *logdir, const char *weights, bool *kept, rd_status *st);
/* Opens the tokenizer of a run: that of the log folder, of the weights, of the key subword_model,
 * or one that rank 0 trains. Collective. The caller owns *out. LOGDIR/text holds subword.model and
 * tokenizer.made.json, which has the rules and is written last. */
rd_code rd_tokenizer_open(const rd_tokenizer_args *a, rd_subword **out, rd_status *st);
/* Returns the id of the token that ends a document, -1: the model has none. */
int32_t rd_tokenizer_end(const rd_subword *s);
/* Returns the number of bytes of text of each id, [rd_subword_size]. The caller frees it. NULL: out
 * of memory. */
int32_t *rd_tokenizer_bytes(const rd_subword *s);

/* ---- the dataset (datasets/lm_text.c) ---- */

/* Where the tokens of a text are kept. */
typedef enum rd_kept_tokens { RD_TOKENS_AUTO, RD_TOKENS_MEMORY, RD_TOKENS_FILE } rd_kept_tokens;
enum { RD_LM_PATH = 4300 };

typedef struct rd_lm_config {
    rd_paths file[3]; /* [rd_split] */
    const char *subword, *subword_model, *data_location;
    int64_t subword_size, seq_len, max_len, eval_stride, vocab_size, end_id, max_line_bytes;
    rd_doc_unit document;
    rd_doc_form input_format;
    rd_kept_tokens token_cache;
    rd_invalid_utf8 invalid_utf8;
    bool has_seq_len, has_end_id;
} rd_lm_config;
extern const rd_option_group rd_group_lm_text;

enum { RD_LM_IDS, RD_LM_FIRST, RD_LM_PROMPT, RD_LM_BLOCKS };

typedef struct rd_lm {
    rd_text_files files; /* of the split */
    rd_text_files train; /* the training text, if the tokenizer is made of it; else empty */
    char file_name[RD_FILES_NAME];
    char train_bin[RD_LM_PATH]; /* the first training file, if it has tokens; else "" */
    char meta[RD_LM_PATH];      /* the meta.pkl beside the tokens; "": none */
    rd_subword *tokenizer;      /* owned; NULL: tokens come from files */
    int32_t *id_bytes;          /* owned; [V] NULL: not known */
    int64_t V, T, stride;
    int32_t end;
    bool end_is_own; /* the tokenizer has no end token: it is number V - 1 */
    bool prompts;    /* the samples are texts to continue */
    rd_doc_rules docs;
    rd_token_head head;
    int64_t n_fed; /* number of lines of all texts of `feed` */
    /* RD_LM_IDS: the tokens. Examples and prompts: RD_LM_FIRST int64_t [n_examples + 1] first token
     * of each, RD_LM_PROMPT int32_t [n_examples] number of tokens of its prompt. */
    rd_block block[RD_LM_BLOCKS];
    rd_choices choices;  /* n 0: the data are none */
    rd_token_list *list; /* owned; [n_lists] */
    int n_lists;
    int64_t *first_window; /* owned; [n_lists + 1] windows before each list */
    int64_t count;
    char fingerprint[256];
    rd_log *log;    /* of rank 0; NULL: none */
    int rank, size; /* --split_data_per_rank: samples of this rank; else 0 and 1 */
} rd_lm;

/* ---- its keys (lm_keys.c) ---- */

/* Reads all keys, finds the files, and sets the lengths. *tokens: the files are tokens. */
rd_code rd_lm_config_read(rd_lm *t, rd_lm_config *c, const rd_dataset_args *a, bool *tokens,
                          rd_status *st);
/* Returns whether the prompts come by `feed`. */
bool rd_lm_fed(const rd_lm *t);

/* ---- the tokens of a text (lm_ids.c) ---- */

/* Makes the tokens of the documents: t->head and t->block. path: the file that gets them, with the
 * key; NULL: they stay in memory. RD_EDATA: the file, and what the tokenizer cannot express. */
rd_code rd_lm_make(rd_lm *t, rd_docs *docs, const char *path, uint64_t key, rd_status *st);
/* Keeps the form that the first line of standard input has: it decides for all lines. */
void rd_lm_keep_form(rd_lm *t, const rd_docs *docs);
/* Finds or makes the tokens of the files: t->list[0]. Local rank 0 makes them; the others map its
 * memory or open its file. Collective. */
rd_code rd_lm_read_text(rd_lm *t, const rd_lm_config *c, const rd_dataset_args *a, rd_status *st);

#endif
