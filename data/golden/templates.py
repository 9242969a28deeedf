"""Renders conversations through chat templates with the transformers library and writes templates.json.

The templates are written for this test in the manner of several model families, each using what theirs use:
white space control, trimming, namespaces, slices, macros, raise_exception, generation blocks.
Run: python templates.py (transformers 5.24.0, jinja2 3.1.6).
"""

import json
import pathlib

from transformers.utils.chat_template_utils import render_jinja_template

TOKENS = {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>", "unk_token": "<|endoftext|>", "pad_token": "<|im_end|>"}

TEMPLATES = {
    "headers": """\
{{- bos_token }}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content'] | trim %}
    {%- set rest = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
    {%- set rest = messages %}
{%- endif %}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}
        {%- set date_string = strftime_now("%d %b %Y") %}
    {%- else %}
        {%- set date_string = "26 Jul 2024" %}
    {%- endif %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{{- "Today Date: " + "fixed" + "\\n\\n" }}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- for message in rest %}
    {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' + message['content'] | trim + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
""",
    "brackets": """\
{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
        {{- raise_exception('roles must alternate') }}
    {%- endif %}
    {%- if message["role"] == "user" %}
        {%- if loop.last and system_message is defined %}
            {{- "[INST] " + system_message + "\\n\\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST] " + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- else %}
        {{- " " + message["content"] + eos_token}}
    {%- endif %}
{%- endfor %}
""",
    "thinking": """\
{%- set ns = namespace(multi_step=true, last_query=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step and message.role == "user" and message.content is string %}
        {%- set ns.multi_step = false %}
        {%- set ns.last_query = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.role != "assistant" %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- else %}
        {%- set reasoning = '' %}
        {%- set content = message.content %}
        {%- if '</think>' in message.content %}
            {%- set content = message.content.split('</think>')[-1].lstrip('\\n') %}
            {%- set reasoning = message.content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query %}
            {{- '<|im_start|>' + message.role + '\\n<think>\\n' + reasoning.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\\n' + content }}
        {%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
""",
    "renamed": """\
{{ bos_token }}
{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}
{% for message in messages %}
    {% if (message['role'] == 'assistant') %}
        {% set role = 'model' %}
    {% else %}
        {% set role = message['role'] %}
    {% endif %}
{{ '<start_of_turn>' + role + '\\n' + message['content'] | trim + '<end_of_turn>\\n' }}
{% endfor %}
{% if add_generation_prompt %}{{'<start_of_turn>model\\n'}}{% endif %}
""",
    "blocks": """\
{%- for message in messages %}
    {%- if message.role == 'assistant' %}
        {{- '<|im_start|>assistant\\n' }}
        {%- generation %}
        {{- message.content.strip().split('</think>')[-1] if not loop.last else message.content.strip() }}
        {{- '<|im_end|>' }}
        {%- endgeneration %}
        {{- '\\n' }}
    {%- else %}
        {{- '<|im_start|>' ~ message.role ~ '\\n' ~ message.content ~ '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
""",
    "open_blocks": """\
{% for message in messages %}
  {% if message['role'] == 'assistant' %}
Assistant: {% generation %}{{ message['content'] }}{{ eos_token }}{% endgeneration %}

  {% else %}
{{ message['role'] | capitalize }}: {{ message['content'] }}

  {% endif %}
{% endfor %}
{% if add_generation_prompt %}Assistant: {% endif %}
""",
    "continued": """\
{%- set text = "one \\
two" %}
{#- a comment with {% generation%} #}
{{- text ~ ': ' }}{% raw %}{{ 'raw' }}{% endraw %}
{%- for message in messages if message.get('name') is none %}
    {{- loop.index }} {{ message.role.title() }}: {{ message.content.split()[0] if message.content.split() else '-' }};
{%- endfor %}
""",
    "macros": """\
{%- macro turn(role, text, last=false) -%}
<{{ role | upper }}>{{ text | replace("\\n", " / ") }}{% if not last %}
{% endif %}
{%- endmacro -%}
{%- set roles = {"user": "u", "assistant": "a", "system": "s"} -%}
{%- for key, value in roles.items() %}{{ key }}={{ value }};{% endfor -%}
{%- for message in messages if message.role in roles -%}
{%- if message.content.startswith('skip') %}{% continue %}{% endif -%}
{{ turn(roles[message.role], message.content, loop.last) }}
{%- endfor -%}
{{- messages | map(attribute="role") | join(",") }} {{ messages | selectattr("role", "equalto", "user") | list | length }}
{{- roles | tojson }}{{ {"z": ["<é>", 1, 2.5, none, true], "a": {}} | tojson(indent=2) }}
""",
}

USER, ASSISTANT, SYSTEM = "user", "assistant", "system"
CONVERSATIONS = [
    [(USER, "Hi"), (ASSISTANT, "Hello!")],
    [(USER, "  spaced \n"), (ASSISTANT, "\n\n answer \n")],
    [(SYSTEM, "Be brief. "), (USER, "1+1?"), (ASSISTANT, "2"), (USER, "skip 안녕 😀\nnew line"), (ASSISTANT, "3 <b>\"&'</b>")],
    [(USER, "a"), (ASSISTANT, "<think>\nhm\n</think>\n\nfirst"), (USER, "b"), (ASSISTANT, "<think>\nso\n</think>\n\nsecond")],
    [(USER, "only a question")],
    [(USER, "two"), (USER, "questions"), (ASSISTANT, "x")],
]


def rendered(template, conversation, prompt):
    messages = [{"role": role, "content": content} for role, content in conversation]
    marks = not prompt and "generation %}" in template
    try:
        texts, spans = render_jinja_template(
            [messages], chat_template=template, add_generation_prompt=prompt, return_assistant_tokens_mask=marks, **TOKENS
        )
    except Exception as error:  # the template's own refusal
        return {"messages": messages, "add_generation_prompt": prompt, "refusal": str(error)}
    case = {"messages": messages, "add_generation_prompt": prompt, "text": texts[0]}
    if marks:
        case["generation"] = [texts[0][start:end] for start, end in spans[0]]
    return case


def main():
    out = [
        {
            "name": name,
            "template": template,
            "cases": [rendered(template, c, prompt) for c in CONVERSATIONS for prompt in (False, True)],
        }
        for name, template in TEMPLATES.items()
    ]
    path = pathlib.Path(__file__).with_name("templates.json")
    path.write_text(json.dumps(out, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
