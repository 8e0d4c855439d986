"""Waivers: what they excuse, and what they do not."""

import pytest

FAILS = "def test_b():\n    assert 1 == 2\n"
PASSES = "def test_a():\n    pass\n"
FIELDS = {
    "tests": "test_made.py::test_b",
    "reason": "the chip cannot count",
    "link": "https://example.org/issues/1",
    "kind": "upstream",
    "raises": "AssertionError",
}


def waiver(**changed):
    lines = [f'{name} = "{value}"' for name, value in (FIELDS | changed).items() if value is not None]
    return "\n".join(["[[waiver]]", *lines])


def test_a_waived_failure_is_none(suite):
    ran = suite(PASSES + FAILS, waivers=waiver())
    assert (ran.code, ran.counts()) == (0, (1, 0, 1, 0))
    assert ran.card["waived"] == [
        {"test": FIELDS["tests"]} | {name: FIELDS[name] for name in ("kind", "reason", "link")}
    ]


@pytest.mark.parametrize("raises", ["LookupError", "builtins.KeyError", "Exception"])
def test_the_exception_may_be_named_by_a_class_it_derives_from(suite, raises):
    ran = suite("def test_b():\n    {}[1]\n", waivers=waiver(raises=raises))
    assert (ran.code, ran.counts()) == (0, (0, 0, 1, 0))


def test_another_exception_is_a_failure(suite):
    ran = suite("def test_b():\n    {}[1]\n", waivers=waiver())
    assert (ran.code, ran.counts()) == (1, (0, 1, 0, 0))


def test_a_waived_test_that_passes_is_a_failure(suite):
    ran = suite("def test_b():\n    pass\n", waivers=waiver())
    assert (ran.code, ran.counts()) == (1, (0, 1, 0, 0))
    assert "remove the waiver" in ran.card["failures"][0]["message"]


def test_a_waiver_that_names_no_test_is_a_failure(suite):
    ran = suite(PASSES, waivers=waiver(tests="test_made.py::test_z*"))
    assert (ran.code, ran.card["verdict"]) == (1, "DOES NOT CONFORM: 1 failure")
    assert ran.card["failures"][0]["test"] == "waivers"


def test_a_waiver_of_what_is_not_claimed_is_a_failure(suite):
    ran = suite("@pytest.mark.capability('graph_capture')\n" + FAILS, waivers=waiver())
    assert (ran.code, ran.counts()) == (1, (0, 0, 0, 1))


def test_a_waiver_of_a_higher_level_is_left_alone(suite):
    text = PASSES + "@pytest.mark.level('full')\n" + FAILS
    assert suite(text, waivers=waiver()).code == 0
    assert suite(text, "--level=full", waivers=waiver()).counts() == (1, 0, 1, 0)


def test_a_star_stands_for_anything_and_brackets_for_themselves(suite):
    text = "@pytest.mark.parametrize('n', [1, 2, 30])\ndef test_b(n):\n    assert n == 30\n"
    assert suite(text, waivers=waiver(tests="test_made.py::test_b[?]")).code == 1
    two = waiver(tests="test_made.py::test_b[1]") + "\n" + waiver(tests="*_b[2*")
    ran = suite(text, waivers=two)
    assert (ran.code, ran.counts()) == (0, (1, 0, 2, 0))


def test_a_fixture_that_fails_is_waived_too(suite):
    text = "@pytest.fixture\ndef bad():\n    assert False\n\ndef test_b(bad):\n    pass\n"
    assert suite(text, waivers=waiver()).counts() == (0, 0, 1, 0)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (waiver(reason=None), "waiver 1 of waivers.toml has no reason"),
        (waiver(reason=" "), "has no reason"),
        (waiver(link=None), "has no link"),
        (waiver(link="ask Bob"), "give the address of an issue"),
        (waiver(raises=None), "has no raises"),
        (waiver(kind="upstrem"), "did you mean 'upstream'?"),
        (waiver(resons="x"), "unknown field 'resons'; did you mean 'reason'?"),
        (waiver() + "\n" + waiver(tests=None), "waiver 2 of waivers.toml has no tests"),
        ("waiver = 3", "must hold [[waiver]] tables"),
        ("waiver = [3]", "is not a table"),
        ("", "must hold [[waiver]] tables"),
        ("[[waiver", "cannot be read"),
    ],
)
def test_a_waiver_file_with_a_fault_is_wrong_usage(suite, text, said):
    ran = suite(FAILS, waivers=text)
    assert (ran.code, ran.card) == (2, None)
    assert said in ran.text
