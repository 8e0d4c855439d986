"""The suite's own rules: what passes, fails, is not claimed, and what each does to the verdict and the exit code."""

import pytest

PASSES = "def test_a(subject):\n    assert subject.capabilities.dtypes\n"
FAILS = "def test_b():\n    assert 1 == 2\n"


def test_a_backend_that_passes_everything_conforms(suite):
    ran = suite(PASSES)
    assert (ran.code, ran.card["verdict"]) == (0, "CONFORMS (core, interface 1)")
    assert ran.counts() == (1, 0, 0, 0)
    assert "CONFORMS (core, interface 1)" in ran.text


def test_every_failure_counts(suite):
    ran = suite(PASSES + FAILS + "def test_c():\n    raise MemoryError('the device is full')\n")
    assert (ran.code, ran.card["verdict"]) == (1, "DOES NOT CONFORM: 2 failures")
    assert [one["test"] for one in ran.card["failures"]] == ["test_made.py::test_b", "test_made.py::test_c"]
    assert "the device is full" in ran.card["failures"][1]["message"]


@pytest.mark.parametrize("phase", ["raise ValueError('no')\n    yield", "yield\n    raise ValueError('no')"])
def test_a_fixture_that_fails_fails_the_test(suite, phase):
    ran = suite(f"@pytest.fixture\ndef bad():\n    {phase}\n\ndef test_a(bad):\n    pass\n")
    assert (ran.code, ran.counts()) == (1, (0, 1, 0, 0))


@pytest.mark.parametrize(
    "text",
    [
        "def test_a():\n    pytest.skip('no memory')\n",
        "@pytest.mark.skip(reason='no memory')\ndef test_a():\n    pass\n",
        "@pytest.mark.skipif(True, reason='no memory')\ndef test_a():\n    pass\n",
        "@pytest.mark.xfail(reason='no memory')\ndef test_a():\n    assert 1 == 2\n",
        "def test_a():\n    pytest.xfail('no memory')\n",
        "@pytest.fixture\ndef f():\n    pytest.skip('no memory')\n\ndef test_a(f):\n    pass\n",
    ],
)
def test_nothing_may_be_skipped(suite, text):
    ran = suite(text)
    assert (ran.code, ran.counts()) == (1, (0, 1, 0, 0))
    assert "may not be skipped" in ran.card["failures"][0]["message"]
    assert "no memory" in ran.card["failures"][0]["message"]


def test_an_area_may_not_skip_itself(suite):
    ran = suite("pytest.skip('not here', allow_module_level=True)\n\ndef test_a():\n    pass\n")
    assert ran.code == 1
    assert ran.card["failures"][0]["test"] == "collection"


def test_an_area_that_cannot_be_imported_is_a_failure(suite):
    ran = suite("import a_module_that_is_not_there\n\ndef test_a():\n    pass\n")
    assert (ran.code, ran.card["verdict"]) == (1, "DOES NOT CONFORM: 1 failure")


# --- capabilities ----------------------------------------------------------------------------------------------------


def test_what_is_not_claimed_is_not_run_and_does_no_harm(suite):
    text = "@pytest.mark.capability('graph_capture')\n" + FAILS
    ran = suite(PASSES + text)
    assert (ran.code, ran.counts()) == (0, (1, 0, 0, 1))
    (row,) = [one for one in ran.card["capabilities"] if one["name"] == "graph_capture"]
    assert (row["declared"], row["counts"]["not_claimed"]) == (False, 1)


def test_what_is_claimed_and_fails_is_a_failure(suite):
    ran = suite("@pytest.mark.capability('weights.fp8')\n" + FAILS)
    assert (ran.code, ran.counts()) == (1, (0, 1, 0, 0))
    (row,) = [one for one in ran.card["capabilities"] if one["name"] == "weights.fp8"]
    assert (row["declared"], row["counts"]["failed"]) == (True, 1)


def test_all_of_a_tests_capabilities_must_be_claimed(suite):
    text = "@pytest.mark.capability('weights.fp8', 'graph_capture')\n" + FAILS
    assert suite(text).counts() == (0, 0, 0, 1)


def test_a_test_that_is_not_claimed_sets_up_no_fixture(suite):
    text = "@pytest.fixture\ndef bad():\n    raise ValueError\n\n"
    ran = suite(text + "@pytest.mark.capability('graph_capture')\ndef test_a(bad):\n    pass\n")
    assert (ran.code, ran.counts()) == (0, (0, 0, 0, 1))


@pytest.mark.parametrize(
    ("marker", "said"),
    [
        ("capability('graph_captur')", "did you mean 'graph_capture'?"),
        ("level('ful')", "did you mean 'full'?"),
        ("level()", "parse_level"),
    ],
)
def test_a_marker_that_means_nothing_stops_the_run(suite, marker, said):
    ran = suite(f"@pytest.mark.{marker}\n{FAILS}")
    assert (ran.code, ran.card) == (2, None)
    assert "test_made.py::test_b" in ran.text
    assert said in ran.text


# --- levels, dtypes and seeds ----------------------------------------------------------------------------------------

LEVELS = (
    "@pytest.mark.level('smoke')\ndef test_s():\n    pass\n\ndef test_c():\n    pass\n\n"
    "@pytest.mark.level('full')\ndef test_f():\n    pass\n"
)


@pytest.mark.parametrize(("level", "count"), [("smoke", 1), ("core", 2), ("full", 3)])
def test_a_level_runs_its_tests_and_those_below(suite, level, count):
    ran = suite(LEVELS, f"--level={level}")
    assert (ran.code, ran.counts()) == (0, (count, 0, 0, 0))
    assert ran.card["verdict"] == f"CONFORMS ({level}, interface 1)"


def test_a_dtype_narrows_the_verdict(suite):
    text = "from deepinfer_conformance.inputs import op_params\n\n"
    text += "@pytest.mark.parametrize(('name', 'op_dtype'), op_params('linear'))\n"
    text += "def test_a(name, op_dtype, dtype):\n    assert op_dtype == dtype == 'float32'\n"
    ran = suite(text, "--dtype=float32")
    assert (ran.code, ran.counts()) == (0, (1, 0, 0, 0))
    assert ran.card["verdict"] == "CONFORMS (core, interface 1, float32 alone)"
    assert suite(text).counts() == (1, 0, 0, 1)


def test_the_seed_reaches_the_tests(suite):
    text = "def test_a(seed):\n    assert seed == 77\n"
    assert suite(text, "--seed=77").code == 0
    assert suite(text).code == 1


# --- runs that say nothing of the whole ------------------------------------------------------------------------------


def test_chosen_tests_give_no_verdict(suite):
    ran = suite(PASSES + FAILS, "-k", "test_a")
    assert (ran.code, ran.card["verdict"].split(":")[0]) == (0, "NO VERDICT")
    assert suite(PASSES + FAILS, "-k", "test_b").code == 1
    assert suite(PASSES + FAILS, "-k", "test_z").code == 2


def test_a_run_that_is_broken_off_gives_no_verdict(suite):
    ran = suite(PASSES + "def test_b():\n    raise KeyboardInterrupt\n")
    assert (ran.code, ran.card["verdict"]) == (1, "NO VERDICT: the run ended after 1 of 2 tests")


def test_a_run_that_stops_at_a_failure_does_not_conform(suite):
    ran = suite(FAILS + PASSES, "-x")
    assert (ran.code, ran.card["verdict"]) == (1, "DOES NOT CONFORM: 1 failure")


# --- usage and availability ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flag", "said"),
    [
        ("--level=ful", "did you mean 'full'?"),
        ("--seed=-1", "--seed -1 is not allowed"),
        ("--seed=x", "--seed x is not allowed"),
        ("--dtype=float64", "choose one of float32, bfloat16"),
        ("--report=card.txt", "must end in .json or .md"),
        ("--report=nowhere/card.json", "there is no folder"),
        ("--waivers=nowhere.toml", "waiver file nowhere.toml cannot be read"),
        ("--backend=", "--backend is empty"),
    ],
)
def test_a_wrong_option_is_wrong_usage(suite, flag, said):
    ran = suite(PASSES, flag)
    assert (ran.code, ran.card) == (2, None)
    assert said in ran.text


def test_a_backend_that_nobody_registers_is_unavailable(suite):
    ran = suite(PASSES, backend="cpx")
    assert (ran.code, ran.card) == (3, None)
    assert "no plugin registers the backend 'cpx'; did you mean 'cpu'?" in ran.text


def test_the_suite_without_a_backend_is_wrong_usage(suite, monkeypatch):
    ran = suite(PASSES, "--collect-only")
    assert ran.code == 0
    code = pytest.main([".", "-c", "/dev/null", "--import-mode=importlib", "-p", "deepinfer_conformance.plugin"])
    assert int(code) == 2
