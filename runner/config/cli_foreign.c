/* cli_foreign.c -- flags of other programs, and what stands for them here.
 *
 * People have them in their scripts: of OpenSeq2Seq, Horovod's examples, Sockeye, fairseq, Marian,
 * OpenNMT-py, Keras, Lightning and Hugging Face, and of launchers. configs/MIGRATING_TRANSLATION.md
 * explains them; a test reads both. Flags that have the name of a key here need no row. The flags
 * of bench mode are in cli_bench.c. */
#include "cli_impl.h"

#include <string.h>

/* Advice that several flags share, to be read behind "here:". */
/* clang-format off */
static const char foreign_by_mpirun[] =
    "--np=N, mpirun or srun starts the ranks (run_dist --np=2 ...); leave it out";
static const char foreign_ranks[] =
    "--np=N starts N ranks on this host, and --hosts=a:2,b:2 on several";
static const char foreign_hosts[] = "--hosts=a:2,b:2 names the hosts and their numbers of ranks";
static const char foreign_rendezvous[] =
    "--hosts=a:2,b:2 on the first host starts all ranks, which find each other; leave it out";
static const char foreign_by_launcher[] =
    "--np=N takes care of this; leave it out, or give it in --mpirun_args=\"WORDS\"";
static const char foreign_restarts[] =
    "run_dist --restarts=N -- run_dist --np=4 ... starts a run again after a failure";
static const char foreign_elastic[] =
    "a run may go on with another number of ranks after a restart; leave it out";
static const char foreign_network[] =
    "--mpirun_args=\"--mca btl_tcp_if_include eth0\" names the network; --mode=doctor finds it";
static const char foreign_timeline[] = "--trace=FILE writes what all ranks do, for Perfetto";
static const char foreign_unneeded[] = "nothing stands for it; leave it out";
static const char foreign_modes[] =
    "--mode=train, eval, train_eval or infer says what to do";
static const char foreign_whole_epochs[] =
    "an epoch is the whole training data, and --max_steps=N limits the updates";
static const char foreign_eval_data[] =
    "evaluation reads its own data: --set source_file_eval=FILE and target_file_eval, or the "
    "folder val beside train";
static const char foreign_data[] =
    "--set source_file=FILE and target_file are text, and --set data_dir=DIR has images";
static const char foreign_named_model[] =
    "--set model=NAME (--list=models), and --set init_from=FILE begins with other weights";
static const char foreign_warmup[] = "--set warmup_steps=N is a number of updates";
static const char foreign_reports[] =
    "TensorBoard's files and metrics.jsonl are always written, into --logdir; leave it out";
static const char foreign_evaluates[] =
    "--mode=train_eval evaluates, with --set eval_frequency=N every N updates";
static const char foreign_again[] = "a new --logdir=DIR begins at step 0; leave it out";
static const char foreign_one_value[] =
    "--sweep KEY=V1,V2 makes one run for each value, below --logdir, and ends with their table";
static const char foreign_config[] = "the config is a word by itself: run_dist x.json --logdir=DIR";
static const char foreign_devices[] =
    "--set device=cpu or cuda says where ranks compute, and mpirun -np how many there are";
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
static const char foreign_gated[] = "--set gated_ff=true";
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
    {"batch_sentences_multiple_of", "bucket_multiple", NULL},
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
    {"transformer_feed_forward_use_glu", NULL, foreign_gated},
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
    {"beta", "coverage_penalty", NULL},
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
    {"no_bucketing", NULL, foreign_no_buckets},
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
    /* torchrun, horovodrun, mpirun, srun */
    {"nproc_per_node", NULL, foreign_ranks},
    {"nproc", NULL, foreign_ranks},
    {"num_proc", NULL, foreign_ranks},
    {"num_processes", NULL, foreign_ranks},
    {"n", NULL, foreign_ranks},
    {"ntasks", NULL, foreign_ranks},
    {"ntasks_per_node", NULL, foreign_ranks},
    {"H", NULL, foreign_hosts},
    {"host", NULL, foreign_hosts},
    {"nnodes", NULL, foreign_hosts},
    {"nodelist", NULL, foreign_hosts},
    {"num_nodes", NULL, foreign_hosts},
    {"machinefile", NULL, "--hostfile=FILE names the hosts, one a line: name slots=2"},
    {"p", NULL, "--ssh_port=N is the port of sshd on the hosts"},
    {"node_rank", NULL, foreign_rendezvous},
    {"machine_rank", NULL, foreign_rendezvous},
    {"master_addr", NULL, foreign_rendezvous},
    {"master_port", NULL, foreign_rendezvous},
    {"main_process_port", NULL, foreign_rendezvous},
    {"rdzv_backend", NULL, foreign_rendezvous},
    {"rdzv_endpoint", NULL, foreign_rendezvous},
    {"rdzv_id", NULL, foreign_rendezvous},
    {"local_rank", NULL, foreign_rendezvous},
    {"standalone", NULL, foreign_by_launcher},
    {"start_timeout", NULL, foreign_by_launcher},
    {"gloo", NULL, foreign_by_launcher},
    {"oversubscribe", NULL, foreign_by_launcher},
    {"allow_run_as_root", NULL, foreign_by_launcher},
    {"bind_to", NULL, foreign_by_launcher},
    {"map_by", NULL, foreign_by_launcher},
    {"mca", NULL, foreign_by_launcher},
    {"x", NULL, foreign_by_launcher},
    {"max_restarts", NULL, foreign_restarts},
    {"min_np", NULL, foreign_elastic},
    {"max_np", NULL, foreign_elastic},
    {"host_discovery_script", NULL, foreign_elastic},
    {"network_interface", NULL, foreign_network},
    {"network_interfaces", NULL, foreign_network},
    {"timeline_filename", NULL, foreign_timeline},
    {"autotune", NULL, foreign_unneeded},
    {"fusion_threshold_mb", NULL, foreign_unneeded},
    {"cache_capacity", NULL, foreign_unneeded},
    {"slots_per_host", NULL, foreign_hosts},
    {"cycle_time_ms", NULL, foreign_unneeded},
    {"check_build", NULL, "--version prints the versions of the program and its libraries"},
    /* Keras, Lightning, examples of PyTorch */
    {"validation_split", NULL, foreign_eval_data},
    {"validation_data", NULL, foreign_eval_data},
    {"steps_per_epoch", NULL, foreign_whole_epochs},
    {"validation_steps", NULL, "--set max_eval_samples=N limits an evaluation"},
    {"use_multiprocessing", NULL, "--set data_threads=N reads images ahead"},
    {"callbacks", NULL,
     "checkpoints, early stopping (stop_patience) and records are keys of the config"},
    {"limit_train_batches", NULL, foreign_whole_epochs},
    {"initial_epoch", NULL, foreign_resumes},
    {"resume", NULL, foreign_resumes},
    {"ckpt_path", NULL, foreign_resumes},
    {"weights", "init_from", NULL},
    {"accumulate_grad_batches", "iter_size", NULL},
    {"gradient_clip_val", "max_grad_norm", NULL},
    {"clipnorm", "max_grad_norm", NULL},
    {"val_check_interval", "eval_frequency", NULL},
    {"accelerator", NULL, foreign_devices},
    {"gpus", NULL, foreign_devices},
    {"gpu", NULL, foreign_devices},
    {"no_cuda", NULL, foreign_devices},
    {"strategy", NULL, foreign_by_mpirun},
    {"precision", NULL, foreign_mixed},
    {"print_freq", NULL, foreign_lines},
    {"evaluate", NULL, foreign_modes},
    {"data", NULL, foreign_data},
    {"data_path", NULL, foreign_data},
    {"default_root_dir", NULL, foreign_folder},
    {"log_dir", NULL, foreign_folder},
    {"checkpoint_dir", NULL, foreign_folder},
    {"exp_dir", NULL, foreign_folder},
    {"work_dir", NULL, foreign_folder},
    /* Hugging Face */
    {"per_device_train_batch_size", "batch_size", NULL},
    {"per_device_eval_batch_size", "eval_batch_size", NULL},
    {"num_train_epochs", "num_epochs", NULL},
    {"gradient_accumulation_steps", "iter_size", NULL},
    {"eval_steps", "eval_frequency", NULL},
    {"save_steps", "checkpoint_steps", NULL},
    {"save_total_limit", "checkpoint_keep", NULL},
    {"num_beams", "beam_width", NULL},
    {"label_smoothing_factor", "label_smoothing", NULL},
    {"max_source_length", "max_seq_len", NULL},
    {"max_target_length", "max_seq_len", NULL},
    {"logging_steps", NULL, foreign_lines},
    {"logging_dir", NULL, foreign_folder},
    {"output_dir", NULL, foreign_folder},
    {"overwrite_output_dir", NULL, foreign_again},
    {"do_train", NULL, foreign_modes},
    {"do_eval", NULL, foreign_modes},
    {"do_predict", NULL, foreign_modes},
    {"train_file", NULL, foreign_data},
    {"dataset_name", NULL, foreign_data},
    {"validation_file", NULL, foreign_eval_data},
    {"model_name_or_path", NULL, foreign_named_model},
    {"model_name", NULL, foreign_named_model},
    {"resume_from_checkpoint", NULL, foreign_resumes},
    {"load_best_model_at_end", NULL, foreign_best},
    {"metric_for_best_model", NULL, foreign_watched},
    {"lr_scheduler_type", NULL, foreign_the_rate},
    {"warmup_ratio", NULL, foreign_warmup},
    {"report_to", NULL, foreign_reports},
    {"eval_strategy", NULL, foreign_evaluates},
    {"evaluation_strategy", NULL, foreign_evaluates},
    {"save_strategy", NULL, "--set checkpoint_steps=N saves every N updates"},
    {"predict_with_generate", NULL, foreign_scored},
    {"deepspeed", NULL, foreign_by_mpirun},
    {"fsdp", NULL, foreign_by_mpirun},
    {"push_to_hub", NULL, foreign_unneeded},
    {"gradient_checkpointing", NULL, foreign_unneeded},
    /* Hydra */
    {"multirun", NULL, foreign_one_value},
    {"sweep", NULL, foreign_one_value},
    {"grid", NULL, foreign_one_value},
    {"config_name", NULL, foreign_config},
    {"config_path", NULL, foreign_config},
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
