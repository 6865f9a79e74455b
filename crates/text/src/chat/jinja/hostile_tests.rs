//! Tests of templates that would exhaust memory, time or the stack.

use super::tests::rendered;
use serde_json::{Map, json};
use std::time::{Duration, Instant};

/// Renders a template that must fail. Returns the message.
fn refused(source: &str) -> String {
    let head: String = source.chars().take(100).collect();
    let start = Instant::now();
    let result = rendered(source, &Map::new());
    let took = start.elapsed();
    assert!(took < Duration::from_secs(30), "{head}: {took:?}");
    match result {
        Ok(text) => panic!("{head}: rendered {} bytes", text.len()),
        Err(message) => message,
    }
}

fn check(source: &str, expected: &str) {
    assert_eq!(
        rendered(source, &Map::new()).as_deref(),
        Ok(expected),
        "{source}"
    );
}

#[test]
fn cycles_are_refused_where_they_are_made() {
    let own = "the value contains the namespace itself";
    for source in [
        "{% set a.x = a %}",
        "{% set a.x = [1, [a]] %}",
        "{% set a.x = {'k': (a,)} %}",
        "{% set a.x = {(a,): 1} %}",
        "{% set a.x = b %}{% set b.x = a %}{{ a == b }}",
        "{% set a.x = [b] %}{% set b.x = {'k': a} %}{{ a }}",
        "{% set a.x = b %}{% set b.x = c %}{% set c.x = [a] %}{{ a|string }}",
        "{% set a.x = namespace(y=a) %}",
        "{% set a.x = cycler(a) %}",
        "{% set a.x = cycler(a).next %}",
        "{% set a.x = [a].index %}",
        "{% for i in [a] %}{% set a.x = loop %}{% endfor %}",
        "{% for i in [[a]] %}{% set b.x = loop %}{% set a.x = b %}{% endfor %}",
        "{% for i in [a] %}{% set a.x = loop.cycle %}{% endfor %}",
        "{% set a.x = [a]|map('default', 1)|list %}",
        "{% set a.x = [a]|batch(1)|list %}",
        "{% set a.x = {'k': a}.items() %}",
        "{% set a.x = dict(k=a) %}",
        "{% set a.x = [{'k': a, 'n': 1}]|groupby('n') %}",
    ] {
        let names = "{% set a = namespace() %}{% set b = namespace() %}{% set c = namespace() %}";
        let message = refused(&format!("{names}{source}"));
        assert!(message.contains(own), "{source}: {message}");
    }
    let changed = "{% for i in [1] %}{% set n = loop.changed(loop) %}{% endfor %}";
    assert!(refused(changed).contains("contains a namespace or a loop"));
    // A macro is not a value that refers to its scope.
    check(
        "{% set a = namespace() %}{% macro f() %}{{ a.x == f }}{% endmacro %}{% set a.x = f %}{{ f() }}",
        "True",
    );
    check(
        "{% set a = namespace(n=1) %}{% set b = namespace(a=a) %}{% set b.l = [a, a] %}{{ b.l[1].n }}",
        "1",
    );
}

#[test]
fn deep_values_are_refused_before_the_stack_ends() {
    let grown = |step: &str, visit: &str| {
        format!(
            "{{% set ns = namespace(x=[]) %}}{{% for i in range(99999) %}}{step}{{% endfor %}}{visit}"
        )
    };
    for step in [
        "[ns.x]",
        "(ns.x,)",
        "{'k': ns.x}",
        "{(1,): ns.x}",
        "[ns.x]|map('list')|list",
        "[ns.x]|batch(1)|list",
        "[ns.x] + []",
        "[ns.x] * 1",
        "dict(k=ns.x)",
        "dict.fromkeys(['k'], ns.x)",
        "cycler(ns.x)",
        "[ns.x].count",
        "[[1, ns.x]]|groupby(0)",
        "{'k': ns.x}.items()",
        "{'k': ns.x}|dictsort",
    ] {
        let message = refused(&grown(&format!("{{% set ns.x = {step} %}}"), ""));
        assert!(message.contains("nested deeper than"), "{step}: {message}");
    }
    // A chain of namespaces has no depth, but writing it has.
    let chain = "{% set ns.x = namespace(x=ns.x) %}";
    check(&grown(chain, "ok").replace("99999", "500"), "ok");
    let message = refused(&grown(chain, "{{ ns }}").replace("99999", "500"));
    assert!(message.contains("nested deeper than"), "{message}");
    // The same chain, made from its end.
    let reversed =
        "{% set b = namespace() %}{% set ns.l = [b] %}{% set ns.e.x = ns.l %}{% set ns.e = b %}";
    let source = format!(
        "{{% set ns = namespace() %}}{{% set ns.e = namespace() %}}{{% set first = ns.e %}}\
         {{% for i in range(9000) %}}{reversed}{{% endfor %}}{{{{ first }}}}"
    );
    refused(&source);
    let loops = "{% set l = namespace(l=1) %}{% for i in range(400) %}{% for x in [l.l] %}\
                 {% set l.l = loop %}{% endfor %}{% endfor %}ok";
    check(loops, "ok");
    let mut deep = json!(1);
    for _ in 0..127 {
        deep = json!([deep]);
    }
    let variables = Map::from_iter([("x".to_string(), deep.clone())]);
    let text = rendered("{{ x|tojson }}{{ x == x }}{{ [x]|sort }}", &variables);
    assert_eq!(text.map(|text| text.len()), Ok(255 + 4 + 257));
    let variables = Map::from_iter([("x".to_string(), json!([deep]))]);
    let message = rendered("", &variables).expect_err("129 levels");
    assert!(message.contains("128 levels"), "{message}");
}

#[test]
fn memory_is_limited() {
    let bombs = [
        "{{ ('a' * 10000000).split('a')|length }}".to_string(),
        "{{ ('a' * 10000000)|list|length }}".to_string(),
        "{{ ('a ' * 5000000).split()|length }}".to_string(),
        "{{ ('a\n' * 5000000).splitlines()|length }}".to_string(),
        "{{ '%1000000000d' % 1 }}".to_string(),
        "{{ '%.1000000000d' % 1 }}".to_string(),
        "{{ '%.1000000000f' % 1 }}".to_string(),
        "{{ '%*d' % (1000000000, 1) }}".to_string(),
        "{{ '%-1000000000s' % 1 }}".to_string(),
        "{{ '{:1000000000}'.format(1) }}".to_string(),
        "{{ '{:{}}'.format(1, 1000000000) }}".to_string(),
        "{{ '{:.1000000000f}'.format(1.0) }}".to_string(),
        "{{ '{:01000000000,}'.format(1) }}".to_string(),
        "{{ '{:99999999999999999999}'.format(1) }}".to_string(),
        "{{ 'a'.center(1000000000) }}{{ 'a'|center(1000000000) }}".to_string(),
        "{{ 'a'.ljust(1000000000) }}".to_string(),
        "{{ 'a'.rjust(9999999999999999999999) }}".to_string(),
        "{{ '1'.zfill(1000000000) }}".to_string(),
        "{{ '\t'.expandtabs(1000000000) }}".to_string(),
        "{{ 'a\nb'|indent(1000000000) }}".to_string(),
        "{{ [1]|tojson(indent=1000000000) }}".to_string(),
        "{{ [1]|batch(1000000000, 0)|list }}".to_string(),
        "{{ [1]|slice(1000000000)|list }}".to_string(),
        "{{ [[]] * 1000000000 }}".to_string(),
        "{{ (1,) * 1000000000 }}".to_string(),
        "{{ 'ab' * 10000000000000 }}".to_string(),
        "{{ range(1000000000)|list }}".to_string(),
        "{% for i in range(99999) %}{{ range(99999)|list|length }}{% endfor %}".to_string(),
    ];
    for bomb in bombs {
        refused(&bomb);
    }
}

#[test]
fn growth_is_limited() {
    let x = "{% set x = 'a' * 1000000 %}";
    let grown = |step: &str| {
        format!(
            "{{% set ns = namespace(x=[1]) %}}{{% for i in range(99999) %}}{{% set ns.x = {step} %}}{{% endfor %}}"
        )
    };
    let doubled = |step: &str| format!("{{% set x = 'aaaaaaaa' %}}{}{{{{ x }}}}", step.repeat(60));
    let bombs = [
        format!("{x}{{{{ x|replace('a', x)|length }}}}"),
        format!("{x}{{{{ x.replace('', x)|length }}}}"),
        format!("{x}{{{{ x.join([x] * 100000)|length }}}}"),
        format!("{x}{{{{ ([x] * 100000)|join|length }}}}"),
        format!("{x}{{{{ ('%s' * 10000) % (([x] * 10000)|list)|length }}}}"),
        format!("{x}{{{{ '%s%s%s%s%s%s%s%s%s%s%s%s%s%s%s%s%s%s%s%s%s' % ((x,) * 21) }}}}"),
        format!("{x}{{{{ x.translate({{97: x}})|length }}}}"),
        format!("{x}{{{{ (x|wordwrap(1))|length }}}}{}", "{{ x|wordwrap(1) }}".repeat(20)),
        format!("{x}{{{{ ('&' * 9000000)|e|length }}}}"),
        format!("{x}{{{{ ('\\x00' * 9000000)|tojson|length }}}}"),
        format!("{x}{{{{ (['\\x00' * 9000000])|string|length }}}}"),
        format!("{x}{{{{ ([x] * 100000)|map('upper')|list|length }}}}"),
        grown("ns.x + ns.x"),
        grown("ns.x|reverse|list + [i]"),
        grown("(ns.x|list) + [i]"),
        grown("dict(ns.x if ns.x is mapping else {}, **{i|string: i})"),
        grown("namespace(x='a' * i)"),
        grown("cycler('a' * i)"),
        grown("joiner('a' * i)"),
        doubled("{% set x = x ~ x %}"),
        doubled("{% set x = x + x %}"),
        doubled("{% set x %}{{ x }}{{ x }}{% endset %}"),
        doubled("{% set x = '%s%s' % (x, x) %}"),
        doubled("{% set x = '{0}{0}'.format(x) %}"),
        doubled("{% set x = x|replace('a', 'aa') %}"),
        "{% macro f() %}{% endmacro %}{% for i in range(99999) %}{% macro g(a) %}{{ i }}{% endmacro %}{{ range(99)|list|length }}{% endfor %}".to_string(),
        "{% for i in range(99999) %}{% for j in range(9) %}{% set l = loop %}{{ l }}{% endfor %}{% endfor %}".to_string(),
        "{% set n = namespace() %}{% for i in range(99999) %}{% set x = namespace(a=1, b=2, c=3) %}{% endfor %}".to_string(),
    ];
    for bomb in bombs {
        refused(&bomb);
    }
}

#[test]
fn work_of_functions_is_limited() {
    let x = "{% set x = 'a' * 4000000 %}{% set y = 'a' * 3999999 ~ 'b' %}";
    let many = |call: &str| {
        let loops = "{% for i in range(99999) %}{% for j in range(99) %}";
        format!("{x}{loops}{{% set z = {call} %}}{{% endfor %}}{{% endfor %}}")
    };
    let bombs = [
        "x == y",
        "x < y",
        "x in [y]",
        "y in x",
        "x.find('b')",
        "x.count('b')",
        "x.startswith(y)",
        "x|length",
        "x[3999999]",
        "x|wordcount",
        "{x: 1}|length",
        "x.endswith((y, y))",
        "x|int",
        "[x, y]|sort|length",
        "x.replace('b', 'c', 0)|length",
    ];
    for call in bombs {
        refused(&many(call));
    }
}

#[test]
fn shared_items_are_visited_within_limits() {
    // Lists that share their items: little memory, but 2^60 values.
    let shared = |visit: &str| {
        format!(
            "{{% set ns = namespace(x=(1,), y=(1,)) %}}{{% for i in range(60) %}}\
             {{% set ns.x = (ns.x, ns.x) %}}{{% set ns.y = (ns.y, ns.y) %}}{{% endfor %}}\
             {{% set x = ns.x %}}{{% set y = ns.y %}}{visit}"
        )
    };
    let bombs = [
        "{{ x == y }}",
        "{{ x < y }}",
        "{{ x in [y] }}",
        "{{ {x: 1}|length }}",
        "{{ x|tojson }}",
        "{{ x|string|length }}",
        "{{ [x, y]|sort|length }}",
        "{{ [x, y]|unique|list|length }}",
        "{{ [x, y]|min }}",
        "{{ [y].index(x) }}",
        "{{ [[x, 1], [y, 2]]|groupby(0) }}",
        "{{ '%s' % [x] }}",
        "{{ '{}'.format(x) }}",
        "{{ x ~ '' }}",
        "{{ [x]|join }}",
        "{{ x|upper }}",
        "{{ [y].count(x) }}",
        "{% for i in [x, y, x] %}{{ loop.changed(i) }}{% endfor %}",
        "{{ x is eq y }}",
        "{{ {1: x} == {1: y} }}",
        "{{ dict([(x, 1)]) }}",
        "{{ {x: 1}.get(y) }}",
        "{{ [x]|urlencode }}",
        "{{ x|e }}",
        "{{ raise_exception(x) }}",
    ];
    for visit in bombs {
        refused(&shared(visit));
    }
}

#[test]
fn loops_and_recursion_are_limited() {
    let bombs = [
        "{% for i in range(9999) %}{% for i in range(9999) %}{% endfor %}{% endfor %}".to_string(),
        "{% macro f(x) %}{{ f(x) }}{{ f(x) }}{% endmacro %}{{ f(1) }}".to_string(),
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(90) }}".to_string(),
        "{% for i in [1] recursive %}{{ loop([1]) }}{% endfor %}".to_string(),
        "{% block a %}{{ self.a() }}{% endblock %}".to_string(),
        "{% set f = range %}{% for i in range(99999) if i > 100000 %}{% endfor %}".repeat(100),
        "{{ 2 ** 99999999999 }}{{ 10 ** 38 * 10 ** 38 }}".to_string(),
        "{{ 10.0 ** 400 }}".to_string(),
    ];
    for bomb in bombs {
        refused(&bomb);
    }
}

#[test]
fn nesting_of_the_source_is_limited() {
    for source in [
        format!("{{{{ {}1 }}}}", "not ".repeat(20_000)),
        format!("{{{{ {}1 }}}}", "-".repeat(20_000)),
        format!("{{{{ 1{} }}}}", "+1".repeat(50_000)),
        format!("{{{{ 1{} }}}}", "**1".repeat(1500)),
        format!("{{{{ a{} }}}}", ".b".repeat(1500)),
        format!("{{{{ a{} }}}}", "|e".repeat(1500)),
        format!("{{{{ a{} }}}}", "()".repeat(1500)),
        format!("{{{{ a{} }}}}", " if a".repeat(1500)),
        format!("{{{{ a{} }}}}", " if a else a".repeat(1000)),
        format!("{{{{ {}1{} }}}}", "(".repeat(1500), ")".repeat(1500)),
        format!("{{{{ {}1{} }}}}", "[".repeat(1500), "]".repeat(1500)),
        format!("{{{{ {}1{} }}}}", "{1:".repeat(900), "}".repeat(900)),
        format!("{{{{ a{}1{} }}}}", "[a".repeat(900), "]".repeat(900)),
        format!("{{{{ {}1{} }}}}", "f(".repeat(900), ")".repeat(900)),
        format!("{{{{ 1 is eq {}1 }}}}", "-".repeat(900)),
        format!("{{% set {}a{} = 1 %}}", "(".repeat(900), ")".repeat(900)),
        "{% if 1 %}".repeat(5000),
        "{% for a in b %}".repeat(5000),
        "{% call f() %}".repeat(5000),
        "{% macro f() %}".repeat(5000),
        "{% if 1 %}{% else %}".repeat(5000),
    ] {
        refused(&source);
    }
    // The longest chains that are allowed, in a recursive macro.
    let sum = format!("{{{{ f(n - 1){} }}}}", " ~ 1 + 1".repeat(400));
    let source =
        format!("{{% macro f(n) %}}{{% if n %}}{sum}{{% endif %}}{{% endmacro %}}{{{{ f(99) }}}}");
    let _: Result<String, String> = rendered(&source, &Map::new());
    let nested = format!("{}f(n - 1){}", "[".repeat(80), "]".repeat(80));
    let source =
        format!("{{% macro f(n) %}}{{{{ {nested} if n }}}}{{% endmacro %}}{{{{ f(99) }}}}");
    let _: Result<String, String> = rendered(&source, &Map::new());
    let chain = "{% elif 0 %}".repeat(5000);
    check(&format!("{{% if 0 %}}{chain}{{% endif %}}ok"), "ok");
}
