# SPDX-License-Identifier: Apache-2.0
"""The families of make.py: a configuration of the library at small odd sizes for each, and what is compared."""
import transformers as hf

V = 193
LOGITS = {"logits": lambda o: o.logits}
HIDDEN = {"last_hidden_state": lambda o: o.last_hidden_state}
IDS = dict(bos_token_id=1, eos_token_id=2, pad_token_id=0)


def llama_like(**more):
    """84 wide, 7 heads of 12, feed-forward 101."""
    c = dict(vocab_size=V, hidden_size=84, intermediate_size=101, num_hidden_layers=2, num_attention_heads=7,
             num_key_value_heads=1, max_position_embeddings=41, tie_word_embeddings=False, **IDS)
    c.update(more)
    return c


def bert_like(**more):
    c = dict(vocab_size=V, hidden_size=84, intermediate_size=101, num_hidden_layers=2, num_attention_heads=7,
             max_position_embeddings=41, type_vocab_size=2, pad_token_id=0)
    c.update(more)
    return c


def rope(theta=10000.0, **more):
    return {"rope_parameters": {"rope_theta": theta, "rope_type": "default", **more}}


def causal(cls, config, **more):
    return dict(kind="causal", cls=cls, config=config, outputs=LOGITS, **more)


FAMILIES = {
    "distilbert": dict(kind="text", cls="DistilBertModel", outputs=HIDDEN, config=hf.DistilBertConfig(
        vocab_size=V, dim=84, hidden_dim=101, n_layers=2, n_heads=7, max_position_embeddings=41)),
    "falcon": causal("FalconForCausalLM", hf.FalconConfig(
        vocab_size=V, hidden_size=84, ffn_hidden_size=101, num_hidden_layers=2, num_attention_heads=7, max_position_embeddings=41,
        alibi=False, bias=False, **IDS)),
    "falcon_new": causal("FalconForCausalLM", hf.FalconConfig(
        vocab_size=V, hidden_size=72, ffn_hidden_size=101, num_hidden_layers=2, num_attention_heads=6, num_kv_heads=2,
        new_decoder_architecture=True, max_position_embeddings=41, bias=True, tie_word_embeddings=False, **IDS)),
    "falcon_sequential": causal("FalconForCausalLM", hf.FalconConfig(
        vocab_size=V, hidden_size=84, num_hidden_layers=2, num_attention_heads=7, multi_query=False, parallel_attn=False,
        max_position_embeddings=41, bias=True, **IDS)),
    "gemma": causal("GemmaForCausalLM", hf.GemmaConfig(**llama_like(head_dim=12, tie_word_embeddings=True), **rope()),
                    plus_one=True, table=0.1),
    "gpt_neo": causal("GPTNeoForCausalLM", hf.GPTNeoConfig(
        vocab_size=V, hidden_size=84, intermediate_size=101, num_layers=3, num_heads=7, max_position_embeddings=41, window_size=6,
        attention_types=[[["global", "local"], 1], [["local"], 1]], **IDS), qk=1.0),
    "granite": causal("GraniteForCausalLM", hf.GraniteConfig(**llama_like(attention_bias=True), **rope(), embedding_multiplier=3.0,
                      logits_scaling=2.0, residual_multiplier=0.4, attention_multiplier=0.15)),
    "mbart": dict(kind="seq2seq", cls="MBartForConditionalGeneration", start=2, config=hf.MBartConfig(
        vocab_size=V, d_model=84, encoder_layers=2, decoder_layers=3, encoder_attention_heads=7, decoder_attention_heads=6,
        encoder_ffn_dim=101, decoder_ffn_dim=75, max_position_embeddings=41, scale_embedding=True, pad_token_id=1, bos_token_id=0,
        eos_token_id=2, decoder_start_token_id=2), pad=1, positions=5.0, gain=1.3),
    "olmo2": causal("Olmo2ForCausalLM", hf.Olmo2Config(**llama_like(), **rope(500000.0))),
    "phi3": causal("Phi3ForCausalLM", hf.Phi3Config(**llama_like(sliding_window=11), **rope(partial_rotary_factor=0.5))),
    "qwen3_moe": causal("Qwen3MoeForCausalLM", hf.Qwen3MoeConfig(
        **llama_like(num_hidden_layers=3), head_dim=10, num_experts=5, num_experts_per_tok=3, moe_intermediate_size=29, norm_topk_prob=True,
        decoder_sparse_step=2, **rope(1000000.0)), load=dict(experts_implementation="eager")),
    "roberta": dict(kind="text", cls="RobertaModel", outputs=HIDDEN, pad=1, config=hf.RobertaConfig(
        **bert_like(pad_token_id=1, max_position_embeddings=43, type_vocab_size=1, layer_norm_eps=1e-5))),
    "stablelm": causal("StableLmForCausalLM", hf.StableLmConfig(
        **llama_like(use_qkv_bias=True), **rope(partial_rotary_factor=0.5))),
    "stablelm_parallel": causal("StableLmForCausalLM", hf.StableLmConfig(
        **llama_like(use_parallel_residual=True), **rope(partial_rotary_factor=0.34))),
    "starcoder2": causal("Starcoder2ForCausalLM", hf.Starcoder2Config(
        **llama_like(sliding_window=9, tie_word_embeddings=True), **rope(100000.0))),
    "deit": dict(kind="picture", cls="DeiTForImageClassification", image=12, patch=4, config=hf.DeiTConfig(
        hidden_size=84, intermediate_size=101, num_hidden_layers=2, num_attention_heads=7, image_size=12, patch_size=4, num_labels=5),
        outputs=LOGITS),
    "deit_distilled": dict(kind="picture", cls="DeiTForImageClassificationWithTeacher", image=12, patch=4, config=hf.DeiTConfig(
        hidden_size=84, intermediate_size=101, num_hidden_layers=2, num_attention_heads=7, image_size=12, patch_size=4, num_labels=5),
        outputs=LOGITS),
    "clip_vision": dict(kind="picture", cls="CLIPVisionModelWithProjection", image=15, patch=5, config=hf.CLIPVisionConfig(
        hidden_size=84, intermediate_size=101, num_hidden_layers=2, num_attention_heads=7, image_size=15, patch_size=5,
        projection_dim=33), outputs={"last_hidden_state": lambda o: o.last_hidden_state, "image_embeds": lambda o: o.image_embeds}),
}
