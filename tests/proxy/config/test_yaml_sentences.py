"""What keeps a text from being YAML is said in the same words whichever of PyYAML's parsers read it."""

import pytest
import yaml

from transom.proxy.config.yaml_sentences import explain_yaml

LIST = "a list that [ opens is not closed, or lacks a comma between two of its elements"
UNCLOSED = "a quote is opened and not closed"
INDENTED = "the indentation is not that of the lines above, or something stands after what was already closed"
QUOTE_IT = "a text that begins with * or & must stand in quotes"
ESCAPE = "a backslash in double quotes begins no known escape; use single quotes"
COLON = "a colon stands where none may; quote the text, or mend the indentation"
FAULTS = [
    ("a: 1\nb: 'x\nc: 1\n", 2, UNCLOSED),
    ('a: 1\nb: "x\nc: 1\n', 2, UNCLOSED),
    (
        "a:\n  b: [1,\n    2\nc: 3\n",
        2,
        LIST,
    ),
    ("a:\n  b: {c: 1,\n d: 2\n", 2, "a mapping that { opens is not closed, or lacks a comma between two of its keys"),
    ("a: [1,", 1, "a list that [ opens or a mapping that { opens is not finished"),
    ("a: 1\nb: *\n", 2, QUOTE_IT),
    ("a: 1\n*: b\n", 2, QUOTE_IT),
    ("a: 1\nb: *c\n", 2, "no anchor of that name stands above; quote a text that begins with *"),
    ("a: @b\n", 1, "a text that begins with @, % or a backquote must stand in quotes"),
    ("a: `b`\n", 1, "a text that begins with @, % or a backquote must stand in quotes"),
    ("a: b: c\n", 1, COLON),
    ("a: 1\n  b: 2\n", 2, COLON),
    ("a: 1\nb\nc: 2\n", 3, "a key lacks its colon, or a text its quotes"),
    ("a: 1\n---\nb: 2\n", 2, "--- begins a second document, and a file holds one"),
    ("a:\n  b: 1\n c: 2\n", 3, INDENTED),
    ("a: [1]]\n", 1, INDENTED),
    ("{a: 1}}\n", 1, INDENTED),
    ('a: "b" c\n', 1, INDENTED),
    ('a: "\\q"\n', 1, ESCAPE),
    ('a: "\\x"\n', 1, ESCAPE),
    ("%YAML 9.0\n---\na: 1\n", 1, "the line that begins with % is not understood; leave it out"),
    ("a:\n\tb: 1\n", 2, "the line is indented with a tab; YAML indents with spaces"),
    ("a: 1\n<<: 5\n", 2, "<< takes a mapping, as in <<: *name"),
]


@pytest.mark.parametrize("parser", [yaml.SafeLoader, getattr(yaml, "CSafeLoader", yaml.SafeLoader)])
@pytest.mark.parametrize(("text", "line", "said"), FAULTS)
def test_a_fault_its_line_and_its_sentence(text: str, line: int, said: str, parser: type[yaml.SafeLoader]) -> None:
    with pytest.raises(yaml.MarkedYAMLError) as caught:
        yaml.load(text, parser)
    found, sentence = explain_yaml(caught.value, text)
    assert sentence == said
    assert found is not None
    # They do not agree on the line behind the last one read.
    assert abs(found - line) <= 1
