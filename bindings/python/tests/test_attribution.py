"""Direct logit attribution of models whose norms and biases differ."""

from __future__ import annotations

from pathlib import Path

import pytest
import tabla

np = pytest.importorskip("numpy")
pytest.importorskip("sklearn", reason="tabla-runtime[probe] is not installed")
pytest.importorskip("matplotlib", reason="tabla-runtime[probe] is not installed")

from tabla import probe  # noqa: E402

GOLDEN = Path(__file__).parents[3] / "tests/golden/arch"
PROMPT = [3, 17, 2, 40, 5]


@pytest.mark.parametrize("name", [None, "gpt2", "qwen3moe", "gemma3"])
def test_contributions_sum_to_the_logits(name: str | None) -> None:
    """RMS norm, layer norm with biases, experts, norms after attention."""
    path = None if name is None else GOLDEN / name / "model.gguf"
    with tabla.Model.load(path, device="cpu", precision="exact", max_context=64) as model:
        logits = model.logits(PROMPT)
        tokens = [int(logits.argmax()), 1, 7]
        result = probe.logit_attribution(model, PROMPT, tokens)
        np.testing.assert_allclose(result.values.sum(axis=0), logits[tokens], atol=2e-3 * np.abs(logits).max())
        assert result.parts[0] == "token_embd" and result.parts[-1] == "bias"
        assert len(result.parts) == 2 + 2 * model.info.layers
        assert "token_embd" in repr(result) and "<table>" in result._repr_html_()
        if name == "gemma3":
            with pytest.raises(tabla.ArgumentError, match="normalizes the output"):
                probe.logit_attribution(model, PROMPT, tokens, heads=True)
            return
        by_head = probe.logit_attribution(model, PROMPT, tokens, heads=True)
        for layer in range(model.info.layers):
            rows = [at for at, part in enumerate(by_head.parts) if part.startswith(f"blk.{layer}.attn_output")]
            assert len(rows) >= model.info.heads
            whole = result.values[result.parts.index(f"blk.{layer}.attn_output")]
            np.testing.assert_allclose(by_head.values[rows].sum(axis=0), whole, atol=1e-2)


def test_other_architectures_are_errors() -> None:
    with tabla.Model.load(GOLDEN / "gemma2/model.gguf", device="cpu", max_context=64) as model:
        with pytest.raises(tabla.ArgumentError, match="softcaps"):
            probe.logit_attribution(model, PROMPT, [1])
