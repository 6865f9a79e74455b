"""Writes the output of `transformers` for small templates: tests/golden/templates/expressions.json.

    python template_expressions.py

Each case is a template and its text with VARIABLES; the text is null if the template raises an error.
Most of the cases are products of operations and operands, so that each operation is tested with every
type. A case of DIFFERENT has a third item, the reason for which Tabla renders it differently.
Generated with transformers 5.24 and jinja2 3.1.6.
"""

import itertools
import json
import pathlib
import re
import sys

import transformers.utils.chat_template_utils as utils

GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "golden/templates/expressions.json"

PEOPLE = [
    {"name": "Zoë", "age": 31, "city": "Bern", "tags": ["a", "b"]},
    {"name": "adam", "age": 28, "city": "ulm", "tags": []},
    {"name": "Bob", "age": 31, "city": "Ulm", "home": {"street": "Main", "rooms": [3, 4]}},
]
VARIABLES = {
    "messages": [
        {"role": "system", "content": "Be terse. "},
        {"role": "user", "content": "Hi <b>\n\n there", "name": None},
        {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": {"x": 1.5, "y": ["é", None, True]}}}]},
    ],
    "tools": None,
    "people": PEOPLE,
    "text": "the quick  brown-fox\tjumps\nOver",
    "empty": "",
    "zero": 0,
    "big": 18446744073709551615,
    "pi": 3.14159,
    "list": [3, 1, 2],
    "words": ["b", "A", "c", "a"],
    "mixed": [1, "a", None, 2.5, True, [1], {"k": "v"}],
    "dict_": {"b": 2, "a": 1, "C": 3},
    "items": {"items": 1, "keys": [2], "update": 3, "type": "array"},
}

# Templates that Tabla renders differently, with the reason.
DIFFERENT = {
    r"{{ 'a'.encode() }}": "there are no bytes",
    r"{{ 2 ** 200 }}": "integers have 128 bits",
    r"{{ (-8) ** 0.5 }}": "there are no complex numbers",
    r"{{ '\N{DIGIT ONE}' }}": "there is no table of the names of characters",
    r"{{ '&eacute;'|striptags }}": "the named references are those of XML and nbsp",
    r"{{ 'http://a.b'|urlize }}": "no chat needs the filter urlize",
    r"{{ ('<'|e) + '<' }}": "filters return plain strings, not Markup",
    r"{{ '<'|safe|e }}": "filters return plain strings, not Markup",
    r"{{ '<'|e is escaped }}": "filters return plain strings, not Markup",
    r"{{ list|map('string')|length }}": "filters return lists, not generators",
    r"{{ list|select|last }}": "filters return lists, not generators",
    r"{{ [list|batch(2)] }}": "filters return lists, not generators",
    r"{{ list|select|tojson }}": "filters return lists, not generators",
    r"{{ list|reverse|length }}": "filters return lists, not generators",
    r"{% autoescape true %}{{ '<' }}{% endautoescape %}": "text is never escaped",
    r"{{ range(100000)|list|pprint|length }}": "pprint writes one line, without sorting keys",
    r"{{ {'b': 1, 'a': 2}|pprint }}": "pprint writes one line, without sorting keys",
    r"{{ -3 ** 2.5 }}": "there are no complex numbers",
}


def product(pattern, **values):
    """Fills the fields of a pattern with all combinations of values."""
    names = list(values)
    for combination in itertools.product(*values.values()):
        out = pattern
        for name, value in zip(names, combination):
            out = out.replace(f"<{name}>", value)
        yield out


OPERANDS = ["7", "-3", "2.5", "true", "'ab'", "[1, 2]", "(1,)", "{'a': 1}", "none", "missing"]
UNARY = [
    "x|length", "x|list", "x|first", "x|last", "x|string", "x|int", "x|float", "x|abs", "x|round", "x|upper",
    "x|capitalize", "x|title", "x|trim", "x|tojson", "x|e", "x|join('-')", "x|reverse|list", "x|sort", "x|unique|list",
    "x|sum", "x|min", "x|max", "x|wordcount", "x|urlencode", "x|default('d')", "x|default('d', true)", "x|d(boolean=true)",
    "x|items|list", "x|dictsort", "x|center(7)", "x|truncate(3)", "x|striptags", "x|filesizeformat", "x|batch(2)|list",
    "x|slice(2)|list", "x|map('string')|list", "x|select|list", "x|reject|list", "x|replace('a', 'b')", "x|indent",
    "x|wordwrap(1)", "x|xmlattr", "x|attr('real')", "x|groupby(0)", "x|count", "x|safe", "x|lower",
    "x is defined", "x is undefined", "x is none", "x is boolean", "x is true", "x is false", "x is integer",
    "x is float", "x is number", "x is string", "x is mapping", "x is iterable", "x is sequence", "x is callable",
    "x is even", "x is odd", "x is lower", "x is upper", "x is divisibleby 2", "x is sameas none", "x is in [7, 'ab']",
    "x is not none and true", "x is filter", "x is escaped", "x is eq 7", "x is ne 7", "x is gt 2", "x is lessthan(3)",
    "not x", "-x", "+x", "x ~ 1", "x[0]", "x[-1]", "x['a']", "x.a", "x.a.b", "x[:1]", "x[::-1]", "x[5]", "x in x",
    "x and 1", "x or 1", "1 if x", "x * 2", "2 * x", "x == x", "x < x", "[x]", "{'k': x}", "'%s' % x", "'%r' % (x,)",
    "'{}'.format(x)", "'{!r:>9}'.format(x)", "'%5.1f' % x", "'%03d' % x", "'{:>6}'.format(x)", "x.items()", "x.upper()",
]
BINARY = ["+", "-", "*", "/", "//", "%", "**", "~", "==", "!=", "<", "<=", ">", ">=", "in", "not in", "and", "or"]

STRING_METHODS = [
    "upper()", "lower()", "title()", "capitalize()", "swapcase()", "casefold()", "strip()", "lstrip()", "rstrip()",
    "strip('the r')", "lstrip('h t')", "rstrip('rev')", "split()", "split(' ')", "split(' ', 1)", "split(maxsplit=2)", "split('q', maxsplit=1)",
    "split(none, 2)", "rsplit()", "rsplit(' ', 1)", "rsplit(none, 1)", "split('')", "splitlines()", "splitlines(true)", "splitlines(keepends=true)",
    "partition(' ')", "partition('zz')", "rpartition(' ')", "rpartition('zz')", "partition('')", "removeprefix('the ')",
    "removeprefix('x')", "removesuffix('Over')", "removesuffix('')", "index('q')", "index('zz')", "rindex('o')",
    "find('o')", "find('o', 15)", "find('zz')", "rfind('o')", "find('o', -6)", "find('o', 0, 3)", "count('o')", "count('')", "count('o', 14)",
    "zfill(40)", "ljust(40) ~ '|'", "rjust(40, '*')", "center(41, '.')", "ljust(40, 'ab')", "ljust(2)", "expandtabs()",
    "expandtabs(4)", "expandtabs(tabsize=0)", "replace('o', '0')", "replace('o', '0', 1)", "replace('', '-')",
    "replace('o', '', 0)", "startswith('the')", "startswith(('x', 'the'))", "endswith('r')", "startswith('quick', 4)",
    "endswith('k', 0, 9)", "startswith(1)", "isalnum()", "isalpha()", "isdigit()", "isdecimal()", "isnumeric()", "isspace()", "isupper()",
    "islower()", "istitle()", "isascii()", "isidentifier()", "isprintable()", "join(['a', 'b'])", "join('xyz')", "join([1])",
    "format(1)", "translate({111: '0', 101: none})", "translate(''.maketrans('oe', '03', 'q'))", "append(1)", "nope()", "upper(1)",
    "__class__", "encode",
]
STRINGS = ["text", "''", "'straße'", "'ÀB-c d'", "'-12'", "' \\t'", "'Ab1'"]

SPECS = ["d", "5d", "<5d", "^7", "+d", " d", "05d", ",d", "_d", "x", "#x", "X", "o", "b", "#b", "c", "e", ".2f", "8.3f", "+.1f", ".0f", "g", ".3g", "%", ".1%", ",.2f", "012,.1f", "*^9", "=+8", "s", ">5s", ".2s", "n", ".3", "G", "E", "q"]
PERCENTS = ["%s", "%5s|", "%-5s|", "%.1s", "%d", "%i", "%5d", "%-5d|", "%+d", "% d", "%05d", "%.3d", "%x", "%#x", "%X", "%o", "%c", "%e", "%.2e", "%f", "%.0f", "%8.2f", "%-8.2f|", "%+.1f", "%08.2f", "%g", "%G", "%.3g", "%#g", "%r", "%a", "%%", "%", "%q", "%(a)s"]

CASES = [
    # Missing keys.
    "{{ messages[0].tool_calls|length }}", "{{ messages[0].tool_calls is defined }}", "{% for c in messages[0].tool_calls %}x{% else %}none{% endfor %}",
    "{{ messages[0].tool_calls[0] }}", "{{ messages[0].a.b }}", "{{ messages[0]['a'] }}", "{{ messages[0].get('a') }}", "{{ messages[0].get('a', {}).get('b', 'c') }}",
    "{{ messages[9] }}", "{{ messages[9].role }}", "{{ messages[-1].role }}", "{{ messages[-1]['tool_calls'][0].function.arguments.y[0] }}", "{{ messages.0.role }}",
    "{{ 'x' in messages[0].missing }}", "{{ missing|default }}|", "{{ missing ~ 'x' }}", "{{ missing() }}", "{{ missing|tojson }}", "{{ missing == missing }}", "{{ missing == none }}",
    "{{ missing|join(',') }}", "{{ missing|first is undefined }}", "{{ missing|sort }}", "{{ missing|int }}", "{{ missing + 1 }}", "{{ [missing] }}", "{{ missing|upper }}|", "{{ missing is not defined }}",
    "{{ (missing or {}).x }}", "{{ missing if missing else 'no' }}", "{{ 'a' if missing }}|", "{{ missing.x is defined }}", "{% if missing %}y{% else %}n{% endif %}", "{{ missing < 1 }}", "{{ missing not in [1] }}",
    "{{ tools|length if tools else 'none' }}", "{{ tools is none }}", "{{ tools.x }}|", "{{ tools[0] }}|", "{{ none|default('x') }}", "{{ none.x is defined }}",
    "{{ items.items }}", "{{ items['items'] }}", "{{ items.keys is callable }}", "{{ items.type }}", "{{ items.update }}|", "{{ items['update'] }}", "{% for k, v in items.items() %}{{ k }}={{ v }};{% endfor %}", "{{ items.update({}) }}",
    "{{ list.append(1) }}", "{{ list.append is defined }}", "{{ dict_.pop('a') }}", "{{ list.copy() }}", "{{ ''.__class__ }}|", "{{ list.index(2) }}", "{{ list.index(9) }}", "{{ list.count(1) }}", "{{ (1, 1).count(1) }}", "{{ (4, 5).index(5) }}",
    "{{ dict_.items() }}", "{{ dict_.keys() }}", "{{ dict_.values() }}", "{{ dict_.items()|list }}", "{{ dict_.keys()|length }}", "{{ dict_.copy() }}", "{{ dict_.get('z') }}", "{{ dict_.get('z', 1) }}", "{{ dict_|list }}", "{{ dict_.items()[0] is defined }}", "{{ 'a' in dict_ }}", "{{ 'a' in dict_.keys() }}", "{{ ('a', 1) in dict_.items() }}", "{{ dict_ == {'a': 1, 'C': 3, 'b': 2} }}", "{{ dict_.get([]) }}", "{{ dict_[[]] is defined }}", "{{ dict_.get(key='a') }}",
    # Literals.
    r"{{ 'a\nb\tc\\d\'e\x41\u00e9\101\q' }}", r"{{ '\N{DIGIT ONE}' }}", r'{{ "\"" }}', r"{{ '\ud83d\ude00' }}" if False else "{{ '😀'|length }}", "{{ 'a' 'b' \"c\" }}", "{{ 1_000 }}", "{{ 0x1F }}", "{{ 0b101 }}", "{{ 0o17 }}", "{{ 1e3 }}", "{{ 1.5e-7 }}", "{{ 1_0.5 }}", "{{ 007 }}", "{{ 00 }}", "{{ 12345678901234567890123 }}",
    "{{ [] }}{{ () }}{{ {} }}{{ (1,) }}{{ (1) }}", "{{ 1, 2 }}", "{{ [1, 2,] }}", "{{ {'a': 1,} }}", "{{ {1: 'a', none: 2, 1.5: 3, true: 4} }}", "{{ {(1, 2): 3}[(1, 2)] }}", "{{ {[]: 1} }}", "{{ True }}{{ False }}{{ None }}{{ true }}", "{{ {'a': {'b': {}}} }}", "{{ {'a': {}}}}", "{{ '}}' }}", "{{ '{{' }}", "{{ \"it's\" }}{{ [\"it's\"] }}{{ ['\"'] }}{{ ['\\'\"'] }}",
    "{{ ['\\n\\t\\\\', 'é', '\\x00', '\\u200b', '\\xa0'] }}", "{{ [1.0, 1e16, 1e15, 0.0001, 0.00001, 1e100, -0.0, 123456789.123] }}", "{{ 0.1 + 0.2 }}", "{{ 1 / 3 }}", "{{ 10 / 5 }}", "{{ 7 // 2 }}{{ -7 // 2 }}{{ 7 // -2 }}{{ 7.5 // 2 }}{{ -7.5 // 2 }}", "{{ 7 % 3 }}{{ -7 % 3 }}{{ 7 % -3 }}{{ -7.5 % 2 }}", "{{ 2 ** 10 }}{{ 2 ** -1 }}{{ 2 ** 0.5 }}{{ 2 ** 3 ** 2 }}", "{{ 2 ** 200 }}", "{{ (-8) ** 0.5 }}", "{{ 1 / 0 }}", "{{ 1 % 0 }}", "{{ 1 // 0.0 }}", "{{ 0 ** -1 }}", "{{ big }}{{ big + 1 }}", "{{ 9223372036854775807 + 1 }}", "{{ -2 ** 2 }}", "{{ - 1 }}{{ +1 }}{{ --1 }}", "{{-1}}", "{{ 1-1 }}", "{{ 3.0|int }}{{ 3.9|int }}{{ -3.9|int }}",
    "{{ 1 == 1.0 }}{{ true == 1 }}{{ '1' == 1 }}{{ none == false }}{{ [1] == [1.0] }}{{ (1,) == [1] }}", "{{ 1 < 2 < 3 }}{{ 1 < 3 < 2 }}{{ 1 == 1 != 2 }}{{ 1 in [1] == true }}", "{{ [1, 2] < [1, 3] }}{{ 'a' < 'b' }}{{ 'B' < 'a' }}{{ (1, 'a') < (1, 'b') }}", "{{ not 1 == 2 }}{{ not true and false }}", "{{ 1 + 2 * 3 - 4 / 2 }}", "{{ 'a' ~ 1 + 2 }}", "{{ 1 ~ 2 ~ none ~ true ~ 1.0 ~ [1] }}", "{{ 'a' * 3 ~ 2 * [0] }}", "{{ 'ab' * -1 }}|", "{{ [1] + [2] }}{{ (1,) + (2,) }}", "{{ [1] + (2,) }}", "{{ 'a' + 1 }}", "{{ 'a' - 'b' }}", "{{ 'é' > 'z' }}", "{{ 5 if true else 6 if false else 7 }}", "{{ (1 if false) is undefined }}", "{{ 1 if 0 else 2 if 0 }}|", "{{ x if x is defined else 'none' }}",
    "{{ -1|abs }}{{ -1.5|abs }}{{ (-1)|abs }}", "{{ 2|string ~ '1' }}", "{{ 1.__class__ }}", "{{ 1.real }}", "{{ pi.is_integer() }}{{ 2.0.is_integer() }}", "{{ 5.bit_length() }}", "{{ true + true }}{{ true * 3 }}", "{{ [1, 2, 3][1:] }}{{ [1, 2, 3][:-1] }}{{ [1, 2, 3][::2] }}{{ [1, 2, 3][::-1] }}{{ [1, 2, 3][5:] }}{{ [1, 2, 3][-2:] }}{{ [1, 2, 3][2:0:-1] }}", "{{ 'héllo'[1] }}{{ 'héllo'[-1] }}{{ 'héllo'[1:3] }}{{ 'héllo'[::-1] }}{{ 'héllo'[3:1:-1] }}{{ 'héllo'[:2] }}{{ 'héllo'[9:] }}|", "{{ list[::0] }}", "{{ list['a':] }}|", "{{ (1, 2, 3)[1:] }}", "{{ range(5)[1:3] }}", "{{ dict_[1:] }}|", "{{ list[true] }}", "{{ list[1.0] }}|", "{{ 'abc'[0:2:1] }}", "{{ text[4:9]|upper }}", "{{ list[0, 1] }}|",
    # Filters with arguments.
    "{{ people|join(', ', attribute='name') }}", "{{ people|join(attribute='age') }}", "{{ people|join(d='-', attribute='home.street') }}", "{{ list|join }}", "{{ [1, none, 'a']|join('|') }}", "{{ 'abc'|join('.') }}", "{{ dict_|join(',') }}", "{{ 5|join }}",
    "{{ ''|default('x', boolean=true) }}", "{{ none|d('x', true) }}", "{{ 0|default(default_value=3, boolean=true) }}", "{{ missing|default(default_value='v') }}", "{{ ''|default('x') }}|", "{{ missing|default('a', 'b', 'c') }}", "{{ missing|default(nope=1) }}",
    "{{ 'aaa'|replace('a', 'b', 2) }}", "{{ 'aaa'|replace('a', 'b', count=1) }}", "{{ 'aaa'|replace('', '-') }}", "{{ 123|replace(2, 'x') }}", "{{ 'aaa'|replace('a', 'b', none) }}", "{{ 'a'|replace('a') }}", "{{ 'aaa'|replace(old='a', new='c') }}",
    "{{ words|sort }}", "{{ words|sort(case_sensitive=true) }}", "{{ words|sort(reverse=true) }}", "{{ words|sort(true, true) }}", "{{ people|sort(attribute='name')|map(attribute='name')|list }}", "{{ people|sort(attribute='age,name')|map(attribute='name')|join }}", "{{ people|sort(attribute='age', reverse=true)|map(attribute='name')|join(',') }}", "{{ [3, 'a']|sort }}", "{{ [[2, 1], [1, 2]]|sort }}", "{{ [[2, 1], [1, 2]]|sort(attribute=1) }}", "{{ dict_|sort }}", "{{ 'hello'|sort|join }}", "{{ [none, 1]|sort }}", "{{ [true, 0, 2]|sort }}",
    "{{ dict_|dictsort }}", "{{ dict_|dictsort(true) }}", "{{ dict_|dictsort(by='value') }}", "{{ dict_|dictsort(false, 'value', reverse=true) }}", "{{ dict_|dictsort(by='x') }}", "{{ list|dictsort }}", "{% for k, v in dict_|dictsort(reverse=true) %}{{ k }}{{ v }}{% endfor %}",
    "{{ words|unique|list }}", "{{ words|unique(case_sensitive=true)|list }}", "{{ people|unique(attribute='age')|map(attribute='name')|list }}", "{{ [1, 1.0, true, '1']|unique|list }}", "{{ [[1], [1]]|unique|list }}", "{{ words|min }}{{ words|max }}{{ words|min(case_sensitive=true) }}", "{{ people|max(attribute='age') }}", "{{ people|min(attribute='age')|attr('name') is defined }}", "{{ []|min is undefined }}", "{{ []|max }}|", "{{ [1, 'a']|max }}", "{{ (2, 9, 4)|max }}",
    "{{ list|sum }}", "{{ list|sum(start=10) }}", "{{ people|sum(attribute='age') }}", "{{ people|sum('age', 5) }}", "{{ [1.5, 2]|sum }}", "{{ []|sum }}", "{{ [[1], [2]]|sum(start=[]) }}", "{{ ['a']|sum }}", "{{ ['a']|sum(start='') }}", "{{ [true, true]|sum }}",
    "{% for k, g in messages|groupby('role') %}{{ k }}{{ g|length }}{% endfor %}", "{% for g in people|groupby('age') %}{{ g.grouper }}:{{ g.list|map(attribute='name')|join(',') }};{% endfor %}", "{% for k, g in people|groupby('city') %}{{ k }}={{ g|length }} {% endfor %}", "{% for k, g in people|groupby('city', case_sensitive=true) %}{{ k }}={{ g|length }} {% endfor %}", "{% for k, g in people|groupby('home.street', default='?') %}{{ k }}{{ g|length }}{% endfor %}", "{{ people|groupby('age') }}", "{{ [[1, 2], [1, 3]]|groupby(0) }}", "{{ people|groupby(attribute='age')|first|first }}",
    "{{ list|batch(2)|list }}", "{{ list|batch(2, 'x')|list }}", "{{ list|batch(linecount=2, fill_with=0)|list }}", "{{ range(7)|slice(3)|list }}", "{{ range(7)|slice(3, 'x')|list }}", "{{ 'abcd'|batch(3)|list }}", "{{ list|slice(0)|list }}", "{{ [list|batch(2)] }}", "{{ list|slice(5)|list }}", "{{ range(6)|slice(slices=2, fill_with='-')|list }}",
    "{{ 'abcdefghijklmnop'|truncate(8, true) }}", "{{ 'foo bar baz qux'|truncate(9) }}", "{{ 'foo bar baz qux'|truncate(11) }}", "{{ 'foo bar baz qux'|truncate(11, false, '...', 0) }}", "{{ 'foo bar baz qux'|truncate(9, leeway=0, end='…') }}", "{{ 'abc'|truncate(2) }}", "{{ 'abcdefghijklmnop'|truncate(length=5, killwords=true, end='') }}", "{{ 5|truncate }}", "{{ text|truncate(12) }}",
    "{{ text|wordwrap(10) }}", "{{ text|wordwrap(5) }}", "{{ text|wordwrap(5, false) }}", "{{ text|wordwrap(12, true, '|') }}", "{{ text|wordwrap(12, break_on_hyphens=false) }}", "{{ 'a well-known e-mail co-op--now --x 1-2 x-y-z'|wordwrap(6) }}", "{{ 'aaa bbb  ccc    ddd'|wordwrap(7) }}", "{{ ''|wordwrap(5) }}|", "{{ 'abcdefgh'|wordwrap(3, wrapstring='/') }}", "{{ 'abc'|wordwrap(0) }}", "{{ text|wordcount }}{{ 'a_b c-d é1 ...'|wordcount }}{{ ''|wordcount }}",
    "{{ 'a b/c?d=é&f+~'|urlencode }}", "{{ {'a b': 'c/d', 'e': 1}|urlencode }}", "{{ [('a', 1), ('b', 'x y')]|urlencode }}", "{{ 5|urlencode }}", "{{ [1]|urlencode }}", "{{ '<b>a</b> &lt;x&gt; <!-- c --> d  e&amp;&#39;&#x41;'|striptags }}", "{{ '&eacute;'|striptags }}", "{{ '<a <b> c>d'|striptags }}", "{{ 'a < b'|striptags }}", "{{ 'abc'|center(8) }}|", "{{ 'abc'|center(7) }}|", "{{ 'abc'|center }}|", "{{ 'abcd'|center(width=2) }}", "{{ 5|center(4) }}|", "{{ 'x'|center(-1) }}",
    "{{ 'a\nb\n\nc'|indent }}", "{{ 'a\nb\n\nc'|indent(2, true) }}", "{{ 'a\nb\n\nc'|indent(width=1, first=true, blank=true) }}", "{{ 'a\nb\n'|indent('> ') }}|", "{{ 'a\n\nb'|indent(blank=true) }}|", "{{ ''|indent(2, true) }}|", "{{ 'a\\r\\nb'|indent(2) }}", "{{ 'a\nb'|indent(0) }}", "{{ 'a\nb'|indent(-1) }}", "{{ 5|indent }}", "{{ 'a\nb'|indent(first=false, width='ab') }}",
    "{{ {'class': 'a b', 'id': none, 'x': 'q\"'}|xmlattr }}|", "{{ {'a': 1}|xmlattr(false) }}", "{{ {'a b': 1}|xmlattr }}", "{{ {}|xmlattr }}|", "{{ {'a': missing, 'b': '<'}|xmlattr(autospace=true) }}", "{{ '<a href=\"x\">\\'&</a>'|e }}", "{{ '<'|escape }}{{ '<'|forceescape }}", "{{ 5|e }}{{ [1]|e }}{{ ['<']|e }}", "{{ ('<'|e) + '<' }}", "{{ '<'|safe|e }}", "{{ '<'|e is escaped }}", "{{ '<'|safe }}",
    "{{ 42.55|round }}{{ 42.55|round(1) }}{{ 42.55|round(1, 'floor') }}{{ 42.55|round(1, 'ceil') }}", "{{ 2.5|round }}{{ 3.5|round }}{{ -2.5|round }}{{ 2.675|round(2) }}", "{{ 42|round }}{{ 42|round(1) }}", "{{ 1234|round(-2) }}{{ 1250|round(-2) }}{{ 1350.0|round(-2) }}{{ -150|round(-2) }}", "{{ 42.55|round(method='ceil') }}{{ 42|round(0, 'floor') }}", "{{ 42.55|round(1, 'x') }}", "{{ 'a'|round }}", "{{ 1.15|round(precision=1) }}{{ 0.5|round|int }}{{ 1e300|round(2) }}", "{{ true|round }}", "{{ 5|round(2)|string }}",
    "{{ '42'|int }}{{ '42.7'|int }}{{ 'x'|int }}{{ 'x'|int(5) }}{{ '0x1A'|int(0, 16) }}{{ '1A'|int(base=16) }}{{ '0b11'|int(base=2) }}{{ ''|int }}{{ ' 7 '|int }}{{ '1_000'|int }}{{ '-5'|int }}{{ none|int(default=9) }}{{ []|int }}", "{{ '12'|int(base=1) }}", "{{ 'zz'|int(0, 36) }}{{ '0x1f'|int(7, 0) }}{{ '010'|int(7, 0) }}", "{{ '1e3'|int }}{{ 'inf'|int }}{{ 'nan'|int(3) }}", "{{ '4.5'|float }}{{ 'x'|float }}{{ 'x'|float(1.5) }}{{ 3|float }}{{ '1e5'|float }}{{ none|float }}{{ ' 1_0.5 '|float }}{{ 'inf'|float }}{{ '-nan'|float }}", "{{ '5'|int + 1 }}", "{{ true|int }}{{ true|float }}", "{{ 99999999999|int }}{{ 1e20|int }}",
    "{{ 1|filesizeformat }}|{{ 0|filesizeformat }}|{{ 999|filesizeformat }}|{{ 1000|filesizeformat }}|{{ 1234567|filesizeformat }}|{{ 1234567|filesizeformat(true) }}|{{ 1e30|filesizeformat }}|{{ '2048'|filesizeformat(binary=true) }}|{{ 1e9|filesizeformat }}", "{{ people|map(attribute='name')|list }}", "{{ people|map(attribute='home.street')|list }}", "{{ people|map(attribute='home.street', default='?')|list }}", "{{ people|map(attribute='home.rooms.1', default=0)|list }}", "{{ words|map('upper')|list }}", "{{ words|map('replace', 'a', 'x')|join }}", "{{ list|map('string')|join('+') }}", "{{ list|map('string')|length }}", "{{ [[1, 2], [3]]|map('join', '-')|list }}", "{{ [[1, 2], [3]]|map(attribute=0)|list }}", "{{ words|map('nope')|list }}", "{{ words|map|list }}", "{{ words|map(attribute='x', y=1)|list }}", "{{ words|map('default', 'x')|list }}", "{{ ['1.5', 'x']|map('float', default=2)|list }}", "{{ messages|map(attribute='content')|map('trim')|map('length')|list }}", "{{ [' a ', 'b']|map('trim')|map('center', 3)|join('|') }}",
    "{{ people|selectattr('home')|map(attribute='name')|list }}", "{{ people|rejectattr('home')|map(attribute='name')|list }}", "{{ people|selectattr('age', 'gt', 30)|list|length }}", "{{ people|selectattr('age', '==', 28)|map(attribute='name')|first }}", "{{ people|selectattr('name', 'in', ['Bob', 'x'])|list|length }}", "{{ people|selectattr('home', 'defined')|list|length }}", "{{ people|selectattr('home.rooms.0', 'equalto', 3)|map(attribute='name')|join }}", "{{ people|rejectattr('age', 'odd')|list|length }}", "{{ range(10)|select('odd')|list }}", "{{ range(10)|select('divisibleby', 3)|list }}", "{{ range(6)|reject('even')|list }}", "{{ mixed|select('string')|list }}", "{{ mixed|select|list|length }}", "{{ mixed|reject('none')|list|length }}", "{{ [0, 1, '', 'a']|select|list }}", "{{ list|select('nope')|list }}", "{{ people|selectattr|list }}", "{{ messages|selectattr('role', 'ne', 'user')|list|length }}", "{{ list|select('>', 1)|list }}", "{{ list|select|last }}", "{{ list|select('in', [1, 3])|list }}", "{{ messages|selectattr('role', 'equalto', 'user')|map(attribute='content')|first|trim }}",
    "{{ list|reverse|list }}{{ 'abc'|reverse }}", "{{ list|reverse|length }}", "{{ list|first }}{{ list|last }}{{ 'abc'|first }}{{ 'abc'|last }}{{ []|first }}|", "{{ dict_|first }}{{ dict_|last }}", "{{ range(3)|last }}", "{{ 'abc'|list }}", "{{ dict_|items|list }}", "{{ dict_|length }}{{ 'é'|length }}{{ list|count }}{{ range(4)|length }}", "{{ 5|length }}", "{{ 'hello world foo-bar (baz) it\\'s'|title }}", "{{ \"they're bill's\".title() }}", "{{ 'hELLO'|capitalize }}{{ 'éA'|capitalize }}{{ ''|capitalize }}|", "{{ ' x '|trim }}|{{ 'xxaxx'|trim('x') }}|{{ '..a.'|trim(chars='.') }}", "{{ list|attr('count') is callable }}{{ dict_|attr('a') }}|", "{{ 'x'|attr('upper')() }}", "{{ {'b': 1, 'a': 2}|pprint }}", "{{ 'x'|pprint }}{{ 1.5|pprint }}", "{{ 'a'|nope }}", "{{ 'http://a.b'|urlize }}", "{{ 'a'.encode() }}", "{{ '%s: %s'|format('a', 1) }}", "{{ '%(x)s-%(y)d'|format(x='a', y=2) }}", "{{ '%s'|format(1, x=2) }}", "{{ '%s %s'|format('a') }}", "{{ '%s'|format('a', 'b') }}", "{{ '%s' % [1, 2] }}", "{{ '%s %s' % ('a', [1]) }}", "{{ '%(a)s %(b)5.1f' % {'a': 'x', 'b': 2} }}", "{{ 'Today: %s' % 'x' }}", "{{ '%d%%' % 5 }}", "{{ '%*d' % (5, 3) }}", "{{ '%-*d|' % (5, 3) }}", "{{ '%.*f' % (2, 3.14159) }}", "{{ 'a' % 1 }}", "{{ 'a' % {'b': 1} }}", "{{ 'a' % [1] }}", "{{ 'a' % () }}", "{{ '%s' % () }}", "{{ '%s' % {} }}", "{{ '%s' % none }}{{ '%s' % true }}{{ '%d' % true }}{{ '%d' % 3.9 }}", "{{ '%x' % 3.5 }}", "{{ '%d' % 'a' }}", "{{ '%c%c' % ('a', 66) }}",
    "{{ '{} {}'.format(1, 'x') }}", "{{ '{1} {0}'.format(1, 2) }}", "{{ '{a} {b[k]} {c.role}'.format(a=1, b={'k': 2}, c=messages[0]) }}", "{{ '{0[1]} {0[0]}'.format(list) }}", "{{ '{:{}}|'.format('a', 5) }}", "{{ '{:{w}.{p}f}'.format(2.345, w=8, p=1) }}", "{{ '{{}} {}'.format(1) }}", "{{ '{'.format(1) }}", "{{ '}'.format(1) }}", "{{ '{} {}'.format(1) }}", "{{ '{x}'.format(1) }}", "{{ '{!r} {!s}'.format('a', 'b') }}", "{{ '{!a}'.format('é') }}", "{{ '{!x}'.format('é') }}", "{{ '{a}'.format_map({'a': 1}) }}", "{{ '{:>5}|{:<5}|{:^5}|{:*^5}'.format('a', 'b', 'c', 'd') }}", "{{ '{}'.format(none) }}{{ '{}'.format(true) }}{{ '{}'.format(1.0) }}{{ '{}'.format([1]) }}", "{{ '{:5}|'.format(true) }}{{ '{:d}'.format(true) }}", "{{ '{:5}'.format([1]) }}", "{{ '{:5}'.format(none) }}", "{{ '{0}{}'.format(1, 2) }}", "{{ '{.real}'.format(5) }}", "{{ 'a'.format('b') }}",
    # tojson
    "{{ mixed|tojson }}", "{{ people[0]|tojson(indent=2) }}", "{{ dict_|tojson(sort_keys=true) }}", "{{ 'é<>&\\'\"'|tojson }}", "{{ 'é😀'|tojson(ensure_ascii=true) }}", "{{ dict_|tojson(separators=(',', ':')) }}", "{{ dict_|tojson(indent='--') }}", "{{ dict_|tojson(indent=0) }}", "{{ [[], {}]|tojson(indent=1) }}", "{{ {1: 2, none: 3, true: 4, 1.5: 5}|tojson }}", "{{ {(1, 2): 3}|tojson }}", "{{ [1.0, 1e20, 0.00001, big]|tojson }}", "{{ range(3)|tojson }}", "{{ (1, 2)|tojson }}", "{{ list|select|tojson }}", "{{ dict_.items()|tojson }}", "{{ messages|tojson(indent=4, ensure_ascii=false) }}", "{{ 'a\\x00\\x1f\\x7f\\u2028'|tojson }}", "{{ 'a\\x7f'|tojson(true) }}", "{{ {'b': 1, 'a': {'d': 1, 'c': 2}}|tojson(none, 1, none, true) }}", "{{ namespace(a=1)|tojson }}", "{{ dict_|tojson(x=1) }}", "{{ {'a': 1, 2: 3}|tojson(sort_keys=true) }}", "{{ ('inf'|float)|tojson }}{{ ('nan'|float)|tojson }}",
    # Globals.
    "{{ range(3)|list }}{{ range(1, 4)|list }}{{ range(10, 0, -3)|list }}{{ range(0)|list }}", "{{ range(3) }}{{ range(1, 9, 2) }}", "{{ range(100001)|length }}", "{{ range(100000)|length }}", "{{ range(1, 2, 0) }}", "{{ range('a') }}", "{{ 3 in range(5) }}{{ 9 in range(5) }}{{ range(0, 10, 3)[2] }}{{ 4 in range(0, 10, 2) }}{{ 2.0 in range(3) }}", "{{ range(3) == range(0, 3) }}", "{{ dict(a=1, b='x') }}", "{{ dict([('a', 1)], c=2) }}", "{{ dict({'a': 1}, a=2) }}", "{{ dict() }}", "{{ dict(1) }}", "{{ dict.fromkeys(['a', 'b'], 0) }}", "{% set c = cycler('a', 'b', 'c') %}{{ c.next() }}{{ c.next() }}{{ c.current }}{{ c.next() }}{{ c.next() }}{% set _ = c.reset() %}{{ c.next() }}", "{{ cycler() }}", "{% set j = joiner(', ') %}{% for x in list %}{{ j() }}{{ x }}{% endfor %}", "{% set j = joiner() %}{{ j() }}a{{ j() }}b", "{% set j = joiner(sep='|') %}{{ j() }}{{ j() }}", "{% set ns = namespace(a=1) %}{% set ns.a = ns.a + 1 %}{% set ns.b = 'x' %}{{ ns.a }}{{ ns.b }}{{ ns.c }}|", "{% set ns = namespace({'a': 1}, b=2) %}{{ ns.a }}{{ ns.b }}{{ ns }}", "{% set ns = namespace() %}{{ ns.x is defined }}{{ ns['x'] is defined }}", "{% set ns = namespace(x=1) %}{{ ns['x'] }}{{ ns|length }}", "{% set ns = namespace(x=0) %}{% for i in list %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}", "{% set ns = namespace(_x=1) %}", "{% set ns = namespace() %}{% set ns._x = 1 %}", "{% set d = {} %}{% set d.x = 1 %}", "{% set missing_ns.x = 1 %}", "{% set a = namespace() %}{% set b = namespace() %}{{ a == b }}{{ a == a }}{{ a is sameas a }}", "{% set ns = namespace(l=[]) %}{% for i in range(3) %}{% set ns.l = ns.l + [i] %}{% endfor %}{{ ns.l }}", "{{ raise_exception('x') }}", "{{ lipsum is defined }}" if False else "{{ namespace is defined }}",
    # Macros and calls.
    "{% macro f() %}{{ varargs|length }}{% endmacro %}{{ f(1, 2) }}", "{% macro f(a) %}{{ a }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ f(1, 2, 3, x=4) }}", "{% macro f(a, b=2, c='x') %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ f(1) }}{{ f(1, c=3) }}{{ f(b=5, a=4) }}", "{% macro f(a) %}{{ a is defined }}{% endmacro %}{{ f() }}", "{% macro f(a) %}{% endmacro %}{{ f(1, 2) }}", "{% macro f(a) %}{% endmacro %}{{ f(x=2) }}", "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(1, a=2) }}", "{% macro f(a, b=a) %}{{ b }}{% endmacro %}{{ f(3) }}", "{% macro f() %}{{ x }}{% endmacro %}{% set x = 1 %}{{ f() }}", "{% set x = 1 %}{% macro f() %}{{ x }}{% endmacro %}{% set x = 2 %}{{ f() }}", "{% macro f() %}{% set y = 5 %}{{ y }}{% endmacro %}{{ f() }}{{ y is defined }}", "{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}", "{% macro f(a, b) %}{% endmacro %}{{ f.name }}{{ f.arguments }}{{ f.catch_kwargs }}{{ f.catch_varargs }}{{ f.caller }}", "{% macro f() %}[{{ caller() }}]{% endmacro %}{% call f() %}x{% endcall %}", "{% macro f() %}{{ caller(1, b=2) }}{% endmacro %}{% call(a, b) f() %}{{ a }}{{ b }}{% endcall %}", "{% macro f() %}{{ caller is defined }}{% endmacro %}{{ f() }}", "{% macro f() %}x{% endmacro %}{% call f() %}y{% endcall %}", "{% macro f(x) %}{{ x }}{% for i in [1] %}{{ caller() }}{% endfor %}{% endmacro %}{% call f('a') %}b{% endcall %}", "{% for i in [1, 2] %}{% macro f() %}{{ i }}{% endmacro %}{{ f() }}{% endfor %}{{ f is defined }}", "{% macro f() %}a{% endmacro %}{{ f()|upper }}{{ f() ~ f() }}{{ f }}", "{% macro f(a=[1, 2]) %}{{ a }}{% endmacro %}{{ f() }}{{ f(a=none) }}", "{% macro f(a) %}{{ a|join(',') }}{% endmacro %}{{ f(a=list) }}{{ f(*[list]) }}{{ f(**{'a': list}) }}", "{% macro f() %}{{ kwargs.x }}{% endmacro %}{{ f(x=1, **{'y': 2}) }}", "{% macro f() %}{{ kwargs.x }}{% endmacro %}{{ f(x=1, **{'x': 2}) }}", "{{ f() }}{% macro f() %}x{% endmacro %}", "{% if true %}{% macro f() %}x{% endmacro %}{% endif %}{{ f() }}", "{% macro f(a, a2=1, b) %}{% endmacro %}", "{% macro outer() %}{% macro inner(x) %}<{{ x }}>{% endmacro %}{{ inner(1) }}{% endmacro %}{{ outer() }}", "{% macro f() %}{% for x in list %}{{ loop.index }}{% endfor %}{% endmacro %}{{ f() }}", "{% for x in list %}{% macro f() %}{{ loop.index }}{% endmacro %}{{ f() }}{% endfor %}", "{% macro f(caller) %}{{ caller }}{% endmacro %}{{ f(1) }}",
    # Blocks, set, with, filter.
    "{% block a %}inside{% endblock %}", "{% block a %}x{% endblock a %}{{ self.a() }}", "{% set x = 1 %}{% block a %}{{ x }}{% endblock %}", "{% for i in [1] %}{% block a %}{{ i }}|{% endblock %}{% endfor %}", "{% for i in [1, 2] %}{% block a scoped %}{{ i }}{% endblock %}{% endfor %}", "{% block a %}{% set x = 1 %}{% endblock %}{{ x is defined }}", "{% block a required %}{% endblock %}", "{% block a %}{% endblock %}{% block a %}{% endblock %}", "{% block a %}{{ super() }}{% endblock %}", "{% block a %}x{% endblock b %}", "{% block a %}{% block b %}in{% endblock %}{% endblock %}", "{{ self.nope() }}", "{% macro f() %}m{% endmacro %}{% block a %}{{ f() }}{% endblock %}", "{% block a scoped required %}{% endblock %}",
    "{% set x = 1, 2 %}{{ x }}", "{% set a, b = 1, 2 %}{{ b }}{{ a }}", "{% set a, (b, c) = 1, (2, 3) %}{{ a }}{{ b }}{{ c }}", "{% set a, b = [1] %}", "{% set a, b = 'xy' %}{{ a }}{{ b }}", "{% set x %}a{{ 1 + 1 }}{% endset %}{{ x }}", "{% set x | upper %}abc{% endset %}{{ x }}", "{% set x | upper | replace('B', '-') %}abc{% endset %}{{ x }}", "{% set x %}{% set y = 1 %}{% endset %}{{ y is defined }}", "{% set x = 1 %}{% if true %}{% set x = 2 %}{% endif %}{{ x }}", "{% set x = 1 %}{% for i in list %}{% set x = x + i %}{{ x }}{% endfor %}{{ x }}", "{% for i in list %}{% set y = i %}{% endfor %}{{ y is defined }}", "{% set true = 1 %}", "{% set loop = 5 %}{{ loop }}", "{% with a = 1, b = 2 %}{{ a }}{{ b }}{% endwith %}{{ a is defined }}", "{% set a = 9 %}{% with a = 1, b = a %}{{ b }}{% endwith %}", "{% with %}{% set z = 1 %}{{ z }}{% endwith %}{{ z is defined }}", "{% with a, b = (1, 2) %}{{ b }}{% endwith %}", "{% with x = list %}{{ x|sum }}{% endwith %}", "{% filter upper %}abc{{ 'd' }}{% endfilter %}", "{% filter replace('a', 'b')|upper %}aac{% endfilter %}", "{% filter indent(2) %}a\nb{% endfilter %}", "{% filter upper %}{% set q = 1 %}{% endfilter %}{{ q is defined }}", "{% generation %}a{% set g = 1 %}{% endgeneration %}{{ g is defined }}", "{% print 1 + 1 %}", "{% print 1, 2 %}", "{% do 1 %}", "{% raw %}{{ x }}{% if %}{% endraw %}", "{%- raw -%}  {{ x }}  {%- endraw -%}", "a {# {{ x }} #} b", "{# a", "{{ 'a'", "{% if true %}", "{% endif %}", "{% nope %}", "{{ }}", "{{ 1 2 }}", "{{ a b }}", "{{ (1 }}", "{{ [1 }}", "{{ {'a' 1} }}", "{{ 1 + }}", "{{ x. }}", "{{ x[] }}", "{{ 'a'|  }}", "{{ x is }}", "{{ $ }}", "{{ 1 ! 2 }}", "{{ a.b.c.d }}", "{% include 'x' %}", "{% import 'x' as y %}", "{% extends 'x' %}", "{% if false %}{% include 'x' %}{% endif %}ok", "{% autoescape true %}{{ '<' }}{% endautoescape %}", "{% autoescape false %}{{ '<' }}{% endautoescape %}",
    # Loops.
    "{% for x in list %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }};{% endfor %}", "{% for x in list %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }};{% endfor %}", "{% for x in list %}{{ loop.previtem is defined }}{{ loop.nextitem is defined }}{% endfor %}", "{% for x in list %}{{ loop.cycle('a', 'b') }}{% endfor %}", "{% for x in list %}{{ loop.cycle() }}{% endfor %}", "{% for x in [1, 1, 2, 2, 1] %}{% if loop.changed(x) %}{{ x }}{% endif %}{% endfor %}", "{% for x in list %}{{ loop.depth }}{{ loop.depth0 }}{% endfor %}", "{% for x in list if x > 1 %}{{ x }}{{ loop.index }}{{ loop.length }}{{ loop.last }};{% endfor %}", "{% for x in list if x > 5 %}{% else %}none{% endfor %}", "{% for x in [] %}{% else %}e{% endfor %}", "{% for x in list %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %}", "{% for x in list %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% else %}e{% endfor %}", "{% break %}", "{% for x in list %}{% with a = x %}{% if a == 1 %}{% break %}{% endif %}{{ a }}{% endwith %}{% endfor %}", "{% for x in list %}{% set s %}{{ x }}{% if x == 1 %}{% continue %}{% endif %}{% endset %}{{ s }}{% endfor %}", "{% for x in list %}{% filter upper %}a{% break %}{% endfilter %}{% endfor %}|", "{% for a, b in [(1, 2), [3, 4], 'xy'] %}{{ a }}{{ b }}{% endfor %}", "{% for a, b in [(1, 2, 3)] %}{% endfor %}", "{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}", "{% for k, v in dict_.items() %}{{ k }}{{ v }}{% endfor %}", "{% for k in dict_ %}{{ k }}{% endfor %}", "{% for c in 'héy' %}{{ c }}.{% endfor %}", "{% for x in 5 %}{% endfor %}", "{% for x in none %}{% endfor %}", "{% for x in missing %}{% endfor %}ok", "{% for x in range(3) %}{{ x }}{% endfor %}", "{% for x in 1, 2, 3 %}{{ x }}{% endfor %}", "{% for x in list %}{% for y in 'ab' %}{{ loop.index }}{{ y }}{% endfor %}{{ loop.index }};{% endfor %}", "{% for x in list %}{% set outer = loop %}{% for y in 'ab' %}{{ outer.index }}{{ loop.index }} {% endfor %}{% endfor %}", "{% for n in [{'v': 1, 'c': [{'v': 2, 'c': [{'v': 3}]}]}, {'v': 4}] recursive %}{{ n.v }}{{ loop.depth }}{% if n.c %}[{{ loop(n.c) }}]{% endif %}{% endfor %}", "{% for n in [[1, [2]], 3] recursive %}{{ loop(n) if n is iterable else n }},{% endfor %}", "{% for x in list %}{{ loop(x) }}{% endfor %}", "{% for x in list %}{% endfor %}{{ loop is defined }}{{ x is defined }}", "{% for x in list %}{{ loop.nope is defined }}{% endfor %}", "{% for loop in list %}{{ loop }}{% endfor %}" if False else "{% for x in list -%} {{ x }} {%- endfor %}", "{% for m in messages %}{{ m.role }}: {{ m.content|trim }}\n{% endfor %}", "{% for m in messages if m.role != 'system' %}{{ loop.index0 }}{{ m.role }}{% if not loop.last %},{% endif %}{% endfor %}", "{% set ns = namespace(seen=false) %}{% for x in list if not ns.seen %}{{ x }}{% set ns.seen = true %}{% endfor %}", "{% for x in list|sort(reverse=true) %}{{ x }}{% endfor %}", "{% for x in list %}{{ loop }}{% break %}{% endfor %}" if False else "{% for x in list %}{{ loop['index'] }}{% endfor %}", "{% for x in messages[1:] %}{{ x.role }}{% endfor %}", "{% for x in messages[::-1] %}{{ x.role }}{% endfor %}", "{% for x in (list if true else []) %}{{ x }}{% endfor %}", "{% for x in [3, 1] + [2] %}{{ x }}{% endfor %}", "{% for _ in range(2) %}{% for _ in range(2) %}{{ loop.index }}{% endfor %}{% endfor %}", "{% for x, in [[1], [2]] %}{{ x }}{% endfor %}", "{% for x in list %}{% if loop.first %}a{% elif loop.last %}z{% else %}m{% endif %}{% endfor %}", "{% if 0 %}a{% elif '' %}b{% elif [] %}c{% elif none %}d{% else %}e{% endif %}", "{% if list and dict_ and not empty %}y{% endif %}", "{% if messages[0]['role'] == 'system' and messages|length > 1 %}y{% endif %}", "{% if (messages[0].role) in ['a', 'system'] %}y{% endif %}", "{% if 'Hi' in messages[1].content %}y{% endif %}", "{% if messages[2].tool_calls is defined and messages[2].tool_calls is not none %}y{% endif %}", "{% if x is defined and x %}y{% else %}n{% endif %}", "{% if 1 if 0 else 1 %}x{% endif %}",
    "{{ list is sequence and list is not string and list is not mapping }}", "{{ 'a' is in 'abc' }}", "{{ 3 is divisibleby(3) and 4 is even }}", "{{ 5 is odd }}{{ 0 is even }}", "{{ 1 is sameas 1 }}{{ none is sameas none }}{{ list is sameas list }}{{ [] is sameas [] }}{{ true is sameas true }}{{ 1 is sameas true }}", "{{ 'upper' is filter }}{{ 'nope' is filter }}{{ 'odd' is test }}", "{{ range is callable }}{{ 'a' is callable }}{{ 'a'.upper is callable }}", "{{ 1 is nope }}", "{{ 'a' is string is true }}", "{{ (1 is integer) is true }}", "{{ 1 is not none }}{{ not 1 is none }}", "{{ x is defined or true }}", "{{ [1] is eq [1] }}{{ 1 is == 1 }}", "{{ 1 is lt 2 }}{{ 1 is greaterthan(0) }}{{ 2 is ge(2) }}{{ 2 is le 1 }}{{ 2 is ne 2 }}", "{{ 'abc' is lower }}{{ 'ABC' is upper }}{{ 5 is lower }}", "{{ none is none }}{{ 0 is none }}", "{{ 1.0 is integer }}{{ 1 is float }}{{ true is integer }}{{ true is number }}",
    # White space.
    "a\n{% if true %}\nb\n{% endif %}\nc", "a\n  {% if true %}  \n  b\n  {% endif %}\nc", "a {%- if true -%} b {%- endif -%} c", "  {%+ if true %}x{% endif %}", "  {% if true +%}\nx{% endif %}", "{{ 1 -}}  \n {{- 2 }}", "{{ 1 }}\n{{ 2 }}\n", "a\n\n", "a\n", "\n", "x{# c #}\ny", "x\n  {# c #}\ny", "x {#- c -#} y", "  {{ 1 }}  {% if true %} a {% endif %}\n", "{% set x = 1 %}\n\n{{ x }}", "\t{% if true %}\ta{% endif %}", "{% if true %}a{% endif %}   {% if true %}b{% endif %}", "a\r\nb\r\n{% if true %}\r\nc\r\n{% endif %}\r\nd", "a\rb\r", "{{ 'a\r\nb' }}", "{{ 'a\rb'|length }}", "{% raw %}\n a\r\n{% endraw %}\nb", "  {% raw %}x{% endraw %}  y", "{{ [\n1,\n2\n] }}", "{%set x=1%}{{x}}", "{%- set x = 1 %}\n  {{- x }}", "a  {{- 1 -}}  b", "{{ 1 }}  \n  {%- if true %} x{% endif %}", "é{{ 1 }}ü{% if 1 %}ß{% endif %}", "\ufeff" if False else "{{ '\\ufeff'|length }}", "{% for x in list %}\n{{ x }}\n{% endfor %}\nend", "{%- for x in list %}\n  {{- x }}\n{%- endfor %}", "  {%- if true %}\n    x\n  {%- endif %}\n", "{% if true %}{# c #}\nx{% endif %}", "a\n  {#- c #}\n  b",
]


def cases():
    yield from CASES
    yield from product("{% set x = <x> %}{{ <e> }}", x=OPERANDS, e=UNARY)
    yield from product("{{ <a> <op> <b> }}", a=OPERANDS, op=BINARY, b=OPERANDS)
    yield from product("{{ <s>.<m> }}", s=STRINGS, m=STRING_METHODS)
    yield from product("{{ '{:<f>}'.format(<v>) }}", f=SPECS, v=["42", "-7", "3.14159", "0.0", "1e20", "'abc'", "true"])
    yield from product("{{ '<f>' % <v> }}", f=PERCENTS, v=["42", "-7", "3.14159", "1e20", "'abc'", "none", "({'a': 'x'})"])
    yield from DIFFERENT


def main():
    # Texts with the address of an object differ in every run.
    address = re.compile(r"<.* at 0x|<(Macro|Namespace|bound method|built-in|generator|class|function|method)")
    seen, out = set(), []
    for template in cases():
        if template in seen:
            continue
        seen.add(template)
        try:
            text = utils._compile_jinja_template(template).render(**VARIABLES)
        except Exception as error:
            print(f"{template}: {type(error).__name__}: {error}", file=sys.stderr)
            text = None
        if text is not None and address.search(text) and template not in DIFFERENT:
            continue
        out.append([template, text] + ([DIFFERENT[template]] if template in DIFFERENT else []))
    lines = [json.dumps(case, ensure_ascii=False) for case in out]
    variables = json.dumps(VARIABLES, ensure_ascii=False)
    GOLDEN.write_text('{"variables": ' + variables + ',\n"cases": [\n' + ",\n".join(lines) + "\n]}\n")
    errors = sum(case[1] is None for case in out)
    print(f"{len(out)} cases, {errors} of them errors, {len(DIFFERENT)} different")


main()
