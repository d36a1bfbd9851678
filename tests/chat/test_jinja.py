"""Jinja: templates render as jinja2 renders them for transformers; they end soon, and reach nothing of Python."""

from __future__ import annotations

import json
from typing import Any

import pytest

from picograd.errors import DataError
from picograd_programs.chat.jinja import Template

CHATML = (
    "{%- for message in messages %}\n    {%- if loop.first and message.role != 'system' %}\n"
    "        {{- '<|im_start|>system\\nBe kind.<|im_end|>\\n' }}\n    {%- endif %}\n"
    "{{ '<|im_start|>' ~ message['role'] }}\n{{ message.content | trim }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}\n<|im_start|>assistant\n{% endif %}"
)
INSTRUCT = (
    "{% if messages and messages[0]['role'] == 'system' %}{% set system = messages[0].content %}{% set rest = "
    "messages[1:] %}"
    "{% else %}{% set rest = messages %}{% endif %}{{ bos_token }}{% for m in rest %}"
    "{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}"
    "{% if m['role'] == 'user' %}{{ '[INST] ' + ('<<SYS>>' + system + '<</SYS>>' if loop.first and system is defined "
    "else '')"
    " + m['content'].strip() + ' [/INST]' }}{% elif m.role == 'assistant' %}{{ ' ' + m.content + eos_token }}{% endif "
    "%}{% endfor %}"
)
THINKING = (
    "{%- set ns = namespace(last=messages|length - 1, seen=false) %}{#- the last question -#}\n"
    "{%- for message in messages[::-1] %}{% set index = (messages|length - 1) - loop.index0 %}\n"
    "{%- if not ns.seen and message.role == 'user' and message.content is string %}{% set ns.last = index %}"
    "{%- set ns.seen = true %}{% endif %}{% endfor %}\n"
    "{% macro turn(message, index, mark='|') -%}\n  {%- set content = message.content %}\n"
    "  {%- if message.role == 'assistant' and '</think>' in content and index < ns.last %}\n"
    "    {%- set content = content.split('</think>')[-1].lstrip('\\n') %}{% endif %}\n"
    "  {{- mark ~ message.role ~ mark ~ content }}\n{%- endmacro %}\n"
    "{%- for message in messages %}{{ turn(message, loop.index0) }}{{ ',' if not loop.last }}{% endfor %}"
    "{%- if enable_thinking is defined and enable_thinking is false %}{{ '<think></think>' }}{% endif %}"
)
PARTS = [
    "{{ 1 + 2 * 3 - 4 / 2 }} {{ 7 // 2 }} {{ -7 % 3 }} {{ 2 ** 3 }} {{ 1 ~ 2 }} {{ 'a' 'b' }} {{ -1 | abs }}",
    "{{ 1 < 2 < 3 }} {{ 1 == 1.0 }} {{ not 1 in [1] }} {{ 1 not in [2] }} {{ 'a' in 'abc' and 2 or 3 }}",
    "{{ [1, 2][0] }} {{ (1,) }} {{ () }} {{ {'a': [1]}.a[0] }} {{ {'items': 1}['items'] }} {{ 'abc'[1:] }}",
    "{{ [1, 2, 3][::2] }}",
    "{{ 'a b'.split() | join('-') }} {{ 'x' | upper }} {{ [3, 1, 2] | sort | first }} {{ 'ab' | reverse }}",
    "{{ nothing | default('d') }}",
    "{{ messages | selectattr('role', 'equalto', 'user') | list | length }}",
    "{{ messages | map(attribute='role') | join(',') }}",
    "{{ messages | rejectattr('role', 'in', ['user']) | list | length }} {{ [0, 1] | select | list }} {{ none is none }}",
    "{% for k, v in {'a': 1, 'b': 2}.items() %}{{ k }}{{ v }}{{ loop.revindex }}{% else %}none{% endfor %}",
    "{% for x in [] %}a{% else %}none{% endfor %}",
    "{% for x in [1, 2, 3, 4] if x % 2 == 0 %}{{ loop.index }}:{{ x }} {% endfor %}",
    "{% for x in range(5) %}{% if x == 1 %}{% continue %}{% elif x == 3 %}{% break %}{% endif %}{{ x }}{% endfor %}",
    "{% for x in 'ab' %}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.cycle('u', 'v') }}{{ loop.length }}{% endfor %}",
    "{% set a = 1 %}{% for x in [1] %}{% set a = 2 %}{% endfor %}{{ a }}",
    "{% set a = 1 %}{% set b, c = 3, 4 %}{{ b + c }}{% set d %}x{{ a }}{% endset %}{{ d }}",
    "{% filter upper %}a{{ 'b' }}{% endfilter %}{{ '%}' }}{{ '}}' }}{{ {'a': {'b': 1}}['a']['b'] }}{{ {'a': {'b': 1}} }}",
    "  {% if true %}  \n a \n  {% endif %}  \n b\n{#- c -#}\n d {# e #}\n  {%+ if true %}f{% endif %}\n\n",
    "{{ messages | tojson }} {{ {'é': [1, none, true]} | tojson(indent=2) }} {{ 'a\\nb' | indent(2) }}",
    "{{ '\\u00e9\\t\\x41\"' }}",
    "{{ 1 is odd }} {{ 'a' is string }} {{ {} is mapping }} {{ [] is iterable }} {{ 1 is number }}",
    "{{ true is boolean }} {{ x is undefined }}",
    "{{ '1' | int + 1 }} {{ 'x' | int(7) }} {{ '1.5' | float }} {{ [1, 1] | unique | list }}",
    "{{ 'abc' | length }} {{ 'a' * 3 }}",
    "{{ false | default('d', true) }} {{ x }} {{ x | length }} {% for y in x %}a{% endfor %} {{ 'a' if x }}",
    "{{ none }} {{ 1.0 }}",
]  # fmt: skip
FAULTS = [
    "{{ x.y.z }}",
    "{{ raise_exception('no') }}",
    "{{ 1 + 'a' }}",
    "{{ {}.a.b }}",
    "{{ f() }}",
    "{{ 1 / 0 }}",
    "{{ [1, 'a'] | sort }}",
]


def dialogues() -> list[list[dict[str, str]]]:
    """Returns dialogues of some roles."""
    texts = {
        "s": ("system", "Be brief."),
        "u": ("user", " Where is  Paris?\n"),
        "a": ("assistant", "<think>\nhm\n</think>\n\nIn France."),
    }
    orders = ["u", "su", "uau", "suauau", "ua", "a", "uu", "us", ""]
    return [[dict(zip(("role", "content"), texts[letter])) for letter in order] for order in orders]


def environment() -> Any:
    """Returns the sandbox in which transformers renders templates."""
    jinja2 = pytest.importorskip("jinja2", reason="jinja2, which runs templates, is not installed")
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def refuse(message: str) -> None:
        raise jinja2.TemplateError(message)

    found = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    found.filters["tojson"] = lambda value, indent=None: json.dumps(value, ensure_ascii=False, indent=indent)
    found.globals["raise_exception"] = refuse
    return found


@pytest.mark.parametrize("source", [CHATML, INSTRUCT, THINKING, *PARTS, *FAULTS])
def test_a_template_renders_as_jinja2_renders_it(source: str) -> None:
    theirs, num_refused = environment().from_string(source), 0
    for messages in dialogues():
        for asks in (True, False):
            values = {"messages": messages, "add_generation_prompt": asks, "bos_token": "<s>", "eos_token": "</s>"}
            values |= {} if asks else {"enable_thinking": False}
            try:
                expected = theirs.render(**values)
            except Exception:  # of any kind
                num_refused += 1
                with pytest.raises(DataError):
                    Template(source).render(**values)
            else:
                assert Template(source).render(**values) == expected
    assert (num_refused == 18) == (source in FAULTS)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("{% include 'x' %}", "\"include 'x'\", which is not"), ("{{ a | nothing }}", "has the filter 'nothing'"),
        ("{{ a is nothing }}", "has the test 'nothing'"), ("{% if a %}b", "has no endif"), ("{{ a b }}", "has 'a b'"),
        ("{{ (a }}", "has '(a'"), ("{{ a ? b }}", "has 'a ? b'"), ("{% for a b %}", "has 'for a b'"), ("{% else %}",
         "has 'else'"),
        ("{{ 'a' | upper(**b) }}", "is not supported"),
    ],
)  # fmt: skip
def test_what_is_not_known_is_named(source: str, words: str) -> None:
    with pytest.raises(DataError) as caught:
        Template(source)
    assert words in caught.value.fact


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__ }}", "{{ ''['__class__'] }}", "{{ [].append(1) }}", "{{ messages.append(1) }}",
        "{{ {}.__init__ }}",
        "{{ raise_exception.__globals__ }}", "{{ namespace.__mro__ }}", "{{ 'a'.format(1) }}", "{{ {}.update({'a': 1}) }}",
        "{{ messages | map(attribute='__class__') | list }}", "{{ loop.__class__ }}", "{{ range.__self__ }}",
    ],
)  # fmt: skip
def test_nothing_of_python_is_reached(source: str) -> None:
    try:
        assert not {"class", "built", "module", "<"} & {*Template(source).render(messages=[{"role": "user"}]).split()}
    except DataError as error:
        assert "undefined" in error.fact


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("{% for a in range(9999) %}{% for b in range(9999) %}x{% endfor %}{% endfor %}", "steps"),
        ("{{ 'a' * 100000000000 }}", "letters"), ("{{ range(1000000000) }}", "counts to more than"), ("{{ 99 ** 99 }}",
         "large"),
        ("{% set ns = namespace(a='aa') %}{% for b in range(99) %}{% set ns.a = ns.a + ns.a %}{% endfor %}", "letters"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "RecursionError"),
         ("{{ " + "(" * 3000 + "1" + ")" * 3000 + " }}", "deeply"),
        *((f"{{% set n = namespace(s={start}) %}}{{% for i in range(60) %}}{{% set n.s = {grown} %}}{{% endfor %}}",
           "letters")
          for start, grown in [
              ("'a' * 99", "n.s.replace('a', 'aaaaaaaa')"), ("'a' * 99", "n.s | replace('a', 'aaaaaaaa')"),
              ("'a' * 99", "[n.s, n.s] | join"), ("'a' * 99", "n.s.join([n.s, n.s])"), ("[1] * 99", "n.s + n.s"),
              ("'a' * 99", "n.s ~ n.s"), ("'a\\nb'", "n.s | indent(99999999)"), ("[1]", "n.s | tojson(indent=99999999)"),
          ]),
        ("{% set ns = namespace(n=9) %}{% for i in range(60) %}{% set ns.n = ns.n * ns.n %}{% endfor %}", "4,096 bits"),
        ("{{ '%1000000000d' % 1 }}", "to a thousand letters"), ("{{ '%*d' % (1000000000, 1) }}", "to a thousand letters"),
        ("{% set s = 'a' * 4000000 %}{% for i in range(9999) %}{{ s }}{% endfor %}", "steps"),
        ("{% set s = 'a' * 4000000 %}{% for i in range(9999) %}{% set b = s | upper %}{% endfor %}", "steps"),
        ("{% for i in range(9999) %}" + "a" * 64000 + "{% endfor %}", "steps"),
        ("{{ " + "{" * 30000, "an unclosed tag"), ("{% if x", "an unclosed tag"),
        ("{{ '" * 9999, "an unclosed tag"),
        ("{% break %}", "break or continue outside a loop"), ("{% set a.b = 1 %}", "is not a namespace"),
        ("{% macro f(a) %}{% endmacro %}{{ f(1, 2) }}", "too many arguments to the macro"),
    ],
)  # fmt: skip
def test_a_template_ends_soon(source: str, words: str) -> None:
    with pytest.raises(DataError) as caught:
        Template(source).render()
    assert words in caught.value.fact
