/* cli_foreign.c -- flags of other programs, and what stands for them here.
 *
 * People have them in their scripts: of OpenSeq2Seq, Horovod's examples, Sockeye, fairseq, Marian
 * and OpenNMT-py. configs/MIGRATING_TRANSLATION.md explains them; a test reads both. Flags that
 * have the name of a key here need no row. The flags of bench mode are in cli_bench.c. */
#include "cli_impl.h"

#include <string.h>

/* Advice that several flags share, to be read behind "here:". */
/* clang-format off */
static const char foreign_by_mpirun[] =
    "mpirun or srun starts the ranks (mpirun -np 2 run_dist ...); leave it out";
static const char foreign_devices[] =
    "--set device=cpu or cuda says where ranks compute, and mpirun -np how many there are";
static const char foreign_no_lock[] = "no GPU is locked; leave it out";
static const char foreign_folder[] =
    "--logdir=DIR has all that a training writes, and --inference_out=FILE is a translation";
static const char foreign_from_folder[] =
    "--logdir=DIR is the folder of the training, with model and vocabularies";
static const char foreign_tokens[] =
    "--set batch_tokens=N counts the target tokens of an update of all ranks";
static const char foreign_sentences[] =
    "--set batch_sentences=N counts the sentences of an update of all ranks";
static const char foreign_adds_up[] =
    "--set batch_tokens=N counts a whole update, and --set iter_size=N only computes it in "
    "parts";
static const char foreign_no_buckets[] =
    "batches have sentences of similar lengths anyway; leave it out";
static const char foreign_no_fit[] = "memory follows --set batch_tokens=N; leave it out";
static const char foreign_steps[] = "--max_steps=N limits the updates";
static const char foreign_lines[] = "--summary_frequency=N is the number of steps between lines";
static const char foreign_watched[] =
    "--set best_monitor=loss or figure decides, and --set metric=sacrebleu is the figure";
static const char foreign_scored[] =
    "--mode=train_eval scores each checkpoint, with --set max_eval_samples=N the first N "
    "sentences";
static const char foreign_both_layers[] = "--set encoder_layers=N and --set decoder_layers=N";
static const char foreign_the_model[] =
    "--set model=transformer_base, transformer_big or transformer_small";
static const char foreign_the_norm[] = "--set norm=pre or post is the place of layer norms";
static const char foreign_the_positions[] = "--set positions=sockeye, interleaved, t2t or learned";
static const char foreign_tie[] = "--set tie_embeddings=all, target or none";
static const char foreign_joined[] = "--set shared_vocab=true";
static const char foreign_the_rate[] =
    "--set lr_policy=inv_sqrt and its inv_sqrt_form, or --set plateau_factor=X";
static const char foreign_clipped[] =
    "--set max_grad_norm=X clips the norm of all gradients; without it none is clipped";
static const char foreign_moments[] = "--set adam_beta1=X and --set adam_beta2=X";
static const char foreign_mixed[] = "--set dtype=mixed";
static const char foreign_no_shards[] =
    "--set source_file=FILE is the text itself, and --mode=prepare makes the vocabularies of "
    "a run before it starts";
static const char foreign_no_workers[] = "text is read without workers; leave it out";
static const char foreign_pairs[] = "--set source_file=FILE and --set target_file=FILE";
static const char foreign_eval_pairs[] =
    "--set source_file_eval=FILE and --set target_file_eval=FILE";
static const char foreign_both_vocabs[] =
    "--set src_vocab_file=FILE and --set tgt_vocab_file=FILE; without them they are made of "
    "the text";
static const char foreign_languages[] =
    "--set source_file=FILE and --set target_file=FILE name the files";
static const char foreign_smoothing[] =
    "--set label_smoothing=0.1 and --set label_smoothing_form=fairseq";
static const char foreign_resumes[] =
    "the same --logdir goes on from its newest checkpoint, and --set init_from=FILE begins "
    "with other weights";
static const char foreign_best[] = "--set checkpoint=best takes the best checkpoint, which is kept";
static const char foreign_many[] = "--nbest=N writes the N best translations";
static const char foreign_forms[] = "--output_format=text, nbest or json";
static const char foreign_joins[] = "output is joined again; leave it out";
static const char foreign_draws[] = "--set decoder_type=sampling";
static const char foreign_lexicon[] = "--set shortlist_file=FILE and --set shortlist_k=N";
static const char foreign_unknowns[] = "--set bar_unk=true keeps unknown words out";
static const char foreign_the_input[] =
    "--input=FILE is the text to translate, and - is standard input";
static const char foreign_by_words[] =
    "--set average_across_timesteps=true is the mean over words, which Transformers have by "
    "default";

typedef struct foreign_flag {
    const char *name; /* with '_' for '-' */
    const char *key;  /* the key that takes the same value; NULL: none */
    const char *say;  /* without a key: what to do instead */
} foreign_flag;

static const foreign_flag foreign[] = {
    /* OpenSeq2Seq and Horovod's examples */
    {"batches_per_allreduce", "iter_size", NULL},
    {"epochs", "num_epochs", NULL},
    {"max_eval_checkpoints", "checkpoint_keep", NULL},
    {"test_batch_size", "eval_batch_size", NULL},
    {"val_batch_size", "eval_batch_size", NULL},
    {"wd", "weight_decay", NULL},
    {"base_lr", "learning_rate", NULL},
    /* Sockeye */
    {"s", "source_file", NULL},
    {"source", "source_file", NULL},
    {"t", "target_file", NULL},
    {"target", "target_file", NULL},
    {"validation_source", "source_file_eval", NULL},
    {"validation_target", "target_file_eval", NULL},
    {"vs", "source_file_eval", NULL},
    {"vt", "target_file_eval", NULL},
    {"beam_size", "beam_width", NULL},
    {"checkpoint_interval", "checkpoint_steps", NULL},
    {"embed_dropout", "dropout_embedding", NULL},
    {"gradient_clipping_threshold", "max_grad_norm", NULL},
    {"initial_learning_rate", "learning_rate", NULL},
    {"keep_last_params", "checkpoint_keep", NULL},
    {"learning_rate_reduce_factor", "plateau_factor", NULL},
    {"learning_rate_reduce_num_not_improved", "plateau_patience", NULL},
    {"learning_rate_warmup", "warmup_steps", NULL},
    {"length_penalty_alpha", "length_penalty", NULL},
    {"length_penalty_beta", "length_penalty_const", NULL},
    {"max_num_checkpoint_not_improved", "stop_patience", NULL},
    {"max_num_epochs", "max_epochs", NULL},
    {"min_num_epochs", "min_epochs", NULL},
    {"min_updates", "min_steps", NULL},
    {"optimizer_epsilon", "adam_epsilon", NULL},
    {"params", "init_from", NULL},
    {"restrict_lexicon", "shortlist_file", NULL},
    {"restrict_lexicon_topk", "shortlist_k", NULL},
    {"source_vocab", "src_vocab_file", NULL},
    {"target_vocab", "tgt_vocab_file", NULL},
    {"transformer_attention_heads", "n_heads", NULL},
    {"transformer_dropout_act", "dropout_ff", NULL},
    {"transformer_dropout_attention", "dropout_attention", NULL},
    {"transformer_dropout_prepost", "dropout_residual", NULL},
    {"transformer_feed_forward_num_hidden", "ff_dim", NULL},
    {"transformer_model_size", "d_model", NULL},
    /* fairseq */
    {"activation_dropout", "dropout_ff", NULL},
    {"adam_eps", "adam_epsilon", NULL},
    {"attention_dropout", "dropout_attention", NULL},
    {"clip_norm", "max_grad_norm", NULL},
    {"decoder_attention_heads", "n_heads", NULL},
    {"decoder_embed_dim", "d_model", NULL},
    {"decoder_ffn_embed_dim", "ff_dim", NULL},
    {"dropout", "dropout_residual", NULL},
    {"encoder_attention_heads", "n_heads", NULL},
    {"encoder_embed_dim", "d_model", NULL},
    {"encoder_ffn_embed_dim", "ff_dim", NULL},
    {"finetune_from_model", "init_from", NULL},
    {"keep_interval_updates", "checkpoint_keep", NULL},
    {"keep_last_epochs", "checkpoint_keep", NULL},
    {"lenpen", "length_penalty", NULL},
    {"max_epoch", "max_epochs", NULL},
    {"max_len_a", "max_length_factor", NULL},
    {"max_len_b", "max_length_offset", NULL},
    {"min_len", "min_length", NULL},
    {"patience", "stop_patience", NULL},
    {"relu_dropout", "dropout_ff", NULL},
    {"sampling_topk", "sampling_top_k", NULL},
    {"sampling_topp", "sampling_top_p", NULL},
    {"save_interval_updates", "checkpoint_steps", NULL},
    {"temperature", "sampling_temperature", NULL},
    {"validate_interval", "eval_epochs", NULL},
    {"validate_interval_updates", "eval_frequency", NULL},
    {"warmup_updates", "warmup_steps", NULL},
    /* Marian */
    {"after_epochs", "max_epochs", NULL},
    {"cpu_threads", "threads", NULL},
    {"dec_depth", "decoder_layers", NULL},
    {"dim_emb", "d_model", NULL},
    {"early_stopping", "stop_patience", NULL},
    {"enc_depth", "encoder_layers", NULL},
    {"exponential_smoothing", "ema", NULL},
    {"learn_rate", "learning_rate", NULL},
    {"lr_warmup", "warmup_steps", NULL},
    {"max_length", "max_seq_len", NULL},
    {"normalize", "length_penalty", NULL},
    {"pretrained_model", "init_from", NULL},
    {"save_freq", "checkpoint_steps", NULL},
    {"transformer_dim_ffn", "ff_dim", NULL},
    {"transformer_dropout", "dropout_residual", NULL},
    {"transformer_dropout_ffn", "dropout_ff", NULL},
    {"transformer_heads", "n_heads", NULL},
    {"valid_freq", "eval_frequency", NULL},
    /* OpenNMT-py */
    {"alpha", "length_penalty", NULL},
    {"dec_layers", "decoder_layers", NULL},
    {"enc_layers", "encoder_layers", NULL},
    {"heads", "n_heads", NULL},
    {"hidden_size", "d_model", NULL},
    {"keep_checkpoint", "checkpoint_keep", NULL},
    {"optim", "optimizer", NULL},
    {"rnn_size", "d_model", NULL},
    {"save_checkpoint_steps", "checkpoint_steps", NULL},
    {"share_vocab", "shared_vocab", NULL},
    {"src_seq_length", "max_seq_len", NULL},
    {"src_vocab", "src_vocab_file", NULL},
    {"src_vocab_size", "num_words", NULL},
    {"tgt_seq_length", "max_seq_len", NULL},
    {"tgt_vocab", "tgt_vocab_file", NULL},
    {"tgt_vocab_size", "num_words", NULL},
    {"transformer_ff", "ff_dim", NULL},
    {"valid_steps", "eval_frequency", NULL},
    {"word_vec_size", "d_model", NULL},
    {"horovod", NULL, foreign_by_mpirun},
    {"dist", NULL, foreign_by_mpirun},
    {"distributed_world_size", NULL, foreign_by_mpirun},
    {"distributed_port", NULL, foreign_by_mpirun},
    {"ddp_backend", NULL, foreign_by_mpirun},
    {"world_size", NULL, foreign_by_mpirun},
    {"gpu_ranks", NULL, foreign_by_mpirun},
    {"num_devices", NULL, foreign_by_mpirun},
    {"sync_sgd", NULL, foreign_by_mpirun},
    {"use_cpu", NULL, foreign_devices},
    {"cpu", NULL, foreign_devices},
    {"device_ids", NULL, foreign_devices},
    {"devices", NULL, foreign_devices},
    {"lock_dir", NULL, foreign_no_lock},
    {"o", NULL, foreign_folder},
    {"output", NULL, foreign_folder},
    {"save_dir", NULL, foreign_folder},
    {"save_model", NULL, foreign_folder},
    {"tensorboard_logdir", NULL, foreign_folder},
    {"log_file", NULL, foreign_folder},
    {"m", NULL, foreign_from_folder},
    {"models", NULL, foreign_from_folder},
    {"batch_type", NULL, foreign_tokens},
    {"max_tokens", NULL, foreign_tokens},
    {"mini_batch_words", NULL, foreign_tokens},
    {"max_sentences", NULL, foreign_sentences},
    {"mini_batch", NULL, foreign_sentences},
    {"update_interval", NULL, foreign_adds_up},
    {"update_freq", NULL, foreign_adds_up},
    {"optimizer_delay", NULL, foreign_adds_up},
    {"accum_count", NULL, foreign_adds_up},
    {"bucket_width", NULL, foreign_no_buckets},
    {"no_bucketing", NULL, foreign_no_buckets},
    {"bucket_scaling", NULL, foreign_no_buckets},
    {"maxi_batch", NULL, foreign_no_buckets},
    {"bucket_size", NULL, foreign_no_buckets},
    {"mini_batch_fit", NULL, foreign_no_fit},
    {"workspace", NULL, foreign_no_fit},
    {"max_updates", NULL, foreign_steps},
    {"max_update", NULL, foreign_steps},
    {"after", NULL, foreign_steps},
    {"after_batches", NULL, foreign_steps},
    {"train_steps", NULL, foreign_steps},
    {"log_interval", NULL, foreign_lines},
    {"disp_freq", NULL, foreign_lines},
    {"report_every", NULL, foreign_lines},
    {"optimized_metric", NULL, foreign_watched},
    {"best_checkpoint_metric", NULL, foreign_watched},
    {"valid_metrics", NULL, foreign_watched},
    {"decode_and_evaluate", NULL, foreign_scored},
    {"num_layers", NULL, foreign_both_layers},
    {"layers", NULL, foreign_both_layers},
    {"a", NULL, foreign_the_model},
    {"arch", NULL, foreign_the_model},
    {"encoder", NULL, foreign_the_model},
    {"decoder", NULL, foreign_the_model},
    {"transformer_preprocess", NULL, foreign_the_norm},
    {"transformer_postprocess", NULL, foreign_the_norm},
    {"encoder_normalize_before", NULL, foreign_the_norm},
    {"decoder_normalize_before", NULL, foreign_the_norm},
    {"transformer_positional_embedding_type", NULL, foreign_the_positions},
    {"position_encoding", NULL, foreign_the_positions},
    {"encoder_learned_pos", NULL, foreign_the_positions},
    {"decoder_learned_pos", NULL, foreign_the_positions},
    {"weight_tying", NULL, foreign_tie},
    {"weight_tying_type", NULL, foreign_tie},
    {"share_all_embeddings", NULL, foreign_tie},
    {"share_decoder_input_output_embed", NULL, foreign_tie},
    {"tied_embeddings", NULL, foreign_tie},
    {"tied_embeddings_all", NULL, foreign_tie},
    {"tied_embeddings_src", NULL, foreign_tie},
    {"share_embeddings", NULL, foreign_tie},
    {"share_decoder_embeddings", NULL, foreign_tie},
    {"joined_dictionary", NULL, foreign_joined},
    {"learning_rate_scheduler_type", NULL, foreign_the_rate},
    {"lr_scheduler", NULL, foreign_the_rate},
    {"lr_decay_inv_sqrt", NULL, foreign_the_rate},
    {"decay_method", NULL, foreign_the_rate},
    {"gradient_clipping_type", NULL, foreign_clipped},
    {"optimizer_betas", NULL, foreign_moments},
    {"optimizer_params", NULL, foreign_moments},
    {"adam_betas", NULL, foreign_moments},
    {"amp", NULL, foreign_mixed},
    {"fp16", NULL, foreign_mixed},
    {"bf16", NULL, foreign_mixed},
    {"d", NULL, foreign_no_shards},
    {"prepared_data", NULL, foreign_no_shards},
    {"num_workers", NULL, foreign_no_workers},
    {"train_sets", NULL, foreign_pairs},
    {"trainpref", NULL, foreign_pairs},
    {"valid_sets", NULL, foreign_eval_pairs},
    {"validpref", NULL, foreign_eval_pairs},
    {"v", NULL, foreign_both_vocabs},
    {"vocabs", NULL, foreign_both_vocabs},
    {"source_lang", NULL, foreign_languages},
    {"target_lang", NULL, foreign_languages},
    {"criterion", NULL, foreign_smoothing},
    {"restore_file", NULL, foreign_resumes},
    {"train_from", NULL, foreign_resumes},
    {"keep_best", NULL, foreign_best},
    {"nbest_size", NULL, foreign_many},
    {"n_best", NULL, foreign_many},
    {"output_type", NULL, foreign_forms},
    {"remove_bpe", NULL, foreign_joins},
    {"post_process", NULL, foreign_joins},
    {"sampling", NULL, foreign_draws},
    {"shortlist", NULL, foreign_lexicon},
    {"strip_unknown_words", NULL, foreign_unknowns},
    {"allow_unk", NULL, foreign_unknowns},
    {"i", NULL, foreign_the_input},
    {"src", NULL, foreign_the_input},
    {"cost_type", NULL, foreign_by_words},
};
/* clang-format on */

static const foreign_flag *foreign_find(const char *name)
{
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++)
        if (!strcmp(foreign[i].name, name)) return &foreign[i];
    return NULL;
}

const char *rd_cli_foreign_key(const char *name)
{
    const foreign_flag *f = foreign_find(name);
    return f ? f->key : NULL;
}

const char *rd_cli_foreign_advice(const char *name)
{
    const foreign_flag *f = foreign_find(name);
    return f ? f->say : NULL;
}
