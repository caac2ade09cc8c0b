"""Chat templates in the shape of well-known ones, and a tiny model that has one."""

import json

import pytest
import tokenizers as tk
import torch
import transformers as hf

# Small templates in the shape of well-known ones.
LLAMA2 = """
{%- if messages[0]['role'] == 'system' %}
    {%- set loop_messages = messages[1:] %}
    {%- set system_message = messages[0]['content'] %}
{%- else %}
    {%- set loop_messages = messages %}
    {%- set system_message = false %}
{%- endif %}
{%- for message in loop_messages %}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
        {{- raise_exception('roles must take turns') }}
    {%- endif %}
    {%- set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] if \
loop.index0 == 0 and system_message != false else message['content'] %}
    {%- if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}
    {%- elif message['role'] == 'assistant' %}{{ ' ' + content.strip() + ' ' + eos_token }}{% endif %}
{%- endfor %}"""
LLAMA3 = """
{%- for message in messages %}
    {%- set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' + \
message['content'] | trim + '<|eot_id|>' %}
    {%- if loop.first %}{% set content = bos_token + content %}{% endif %}
    {{- content }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}"""
CHATML = """{% for message in messages %}
{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\\nYou are a helpful \
assistant.<|im_end|>\\n' }}{% endif %}
{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}
{% endfor %}
{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}
"""
ZEPHYR = """{% for message in messages %}
{% if message['role'] == 'user' %}
{{ '<|user|>\\n' + message['content'] + eos_token }}
{% elif message['role'] == 'system' %}
{{ '<|system|>\\n' + message['content'] + eos_token }}
{% elif message['role'] == 'assistant' %}
{% generation %}{{ '<|assistant|>\\n' + message['content'] + eos_token }}{% endgeneration %}
{% endif %}
{% if loop.last and add_generation_prompt %}
{{ '<|assistant|>' }}
{% endif %}
{% endfor %}"""
MISTRAL = """{{ bos_token }}{% set ns = namespace(turn=0, seen={}) %}{% for message in messages %}{% if \
message.role == 'system' %}{% continue %}{% endif %}
{%- set ns.turn = ns.turn + 1 %}{% if message.role == 'user' %}{{ '[INST] ' ~ message.content ~ ' [/INST]' \
}}{% else %}{{ message.content ~ eos_token }}{% endif %}{% endfor %}"""
GEMMA = """{{ bos_token }}{% if messages[0]['role'] == 'system' %}{% set first = messages[0]['content'] \
| trim ~ '\\n\\n' %}{% set messages = messages[1:] %}{% else %}{% set first = '' %}{% endif %}
{%- for message in messages %}{% set role = 'model' if message['role'] == 'assistant' else message['role'] %}
{{- '<start_of_turn>' + role + '\\n' + (first if loop.first else '') + message['content'] | trim + \
'<end_of_turn>\\n' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}"""
OTHERS = """{%- macro line(m, n=1) -%}{{ n }}:{{ m.role | upper }}|{{ m.content | tojson }}|{{ dict(a=1, \
**{'b': 'é'}) | tojson(indent=2) }}{%- endmacro -%}
{%- for m in messages | selectattr('role', 'ne', 'system') -%}{{ line(m, loop.index) }}{{ '\\n' if not \
loop.last }}{%- endfor -%}
{{ tools is none }}{{ documents is none }}{{ unk_token is defined }}{{ strftime_now('%Y')[:2] }}{% if loopy \
is not defined %}.{% endif %}{{ messages | length }}{{ [3,1,2] | sort | join(',') }}"""
SHAPES = {
    "llama2": LLAMA2,
    "llama3": LLAMA3,
    "chatml": CHATML,
    "zephyr": ZEPHYR,
    "mistral": MISTRAL,
    "gemma": GEMMA,
    "others": OTHERS,
}

USER = {"role": "user", "content": "  What is a mat?\n"}
CONVERSATIONS = [
    [USER],
    [{"role": "system", "content": "Be brief, été <b> & 'quotes' 😀"}, USER],
    [
        USER,
        {"role": "assistant", "content": " A rug. "},
        {"role": "user", "content": "猫? {{ 7 * 7 }} {% raw %}"},
    ],
    [
        {"role": "system", "content": "x"},
        USER,
        {"role": "assistant", "content": "</s><|im_end|>"},
        {"role": "user", "content": ""},
    ],
]
SPECIAL = [
    "<s>",
    "</s>",
    "<unk>",
    "<|im_start|>",
    "<|im_end|>",
    "<|eot_id|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<start_of_turn>",
    "<end_of_turn>",
]


@pytest.fixture
def folder(tmp_path):
    return write_llama(tmp_path / "model")


def write_llama(folder):
    """A tiny LLaMA that reads bytes, with a tokenizer that knows the tokens of templates."""
    tokenizer = tk.Tokenizer(tk.models.BPE())
    tokenizer.pre_tokenizer, tokenizer.decoder = (
        tk.pre_tokenizers.ByteLevel(add_prefix_space=False),
        tk.decoders.ByteLevel(),
    )
    alphabet = tk.pre_tokenizers.ByteLevel.alphabet()
    trainer = tk.trainers.BpeTrainer(
        vocab_size=282, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(["what is a mat a rug"] * 3, trainer)
    tokenizer.post_processor = tk.processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    torch.manual_seed(1)
    config = hf.LlamaConfig(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=12,
        intermediate_size=20,
        num_hidden_layers=1,
        num_attention_heads=3,
        num_key_value_heads=1,
        bos_token_id=0,
        eos_token_id=1,
        max_position_embeddings=999,
    )
    hf.LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def tell(folder, template, **more):
    said = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "unk_token": "<unk>",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(said | {"chat_template": template} | more))
