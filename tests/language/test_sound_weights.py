"""Checkpoints that transformers would load with wrong numbers are refused: NaN, quantised, unread tensors."""

from __future__ import annotations

import json
import shutil

import pytest
import torch
from foreign import make_checkpoint
from safetensors.torch import load_file, save_file

from components.errors import DataError
from components.language.backbone import load_backbone, save_model
from components.language.checkpoint_files.inspection import inspect_model
from components.language.checkpoint_files.weight_files import SINGLE
from components.language.sampled_ids import without_unknown

IDS = torch.tensor([[5, 6, 7, 8, 9]])
EMBEDDINGS = "model.embed_tokens.weight"
HEAD = "lm_head.weight"
UP = "model.layers.0.mlp.up_proj.weight"


@pytest.fixture(scope="module", params=[False, True], ids=["untied", "tied"])
def tied_or_untied(request, tmp_path_factory):
    return make_checkpoint(tmp_path_factory.mktemp("either"), "llama", tie_word_embeddings=request.param)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return make_checkpoint(tmp_path_factory.mktemp("whole"), "llama")


@pytest.fixture
def model(whole, tmp_path):
    return shutil.copytree(whole, tmp_path / "model")


def change_weights(directory, change):
    weights = {name: weight.clone() for name, weight in load_file(directory / SINGLE).items()}
    save_file(change(weights) or weights, directory / SINGLE, {"format": "pt"})


def change_config(directory, **values):
    file = directory / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


@pytest.mark.parametrize("name", [UP, "model.norm.weight", EMBEDDINGS, HEAD])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_nan_or_infinite_weight_is_refused_and_its_tensor_named(model, name, value):
    change_weights(
        model, lambda weights: weights[name].view(-1)[70 % weights[name].numel()].fill_(value) and None
    )
    with pytest.raises(DataError, match=f"no finite numbers: 1 in {name}") as error_info:
        inspect_model(model)
    assert "bfloat16" in str(error_info.value)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("rows", [4, 64])
def test_rows_without_a_token_may_hold_nan(tied_or_untied, tmp_path, value, rows):
    """With fewer or more such rows than markers, logits and gradients equal those of a model without them."""
    padded = shutil.copytree(tied_or_untied, tmp_path / "padded")

    def pad(weights):
        for name in {EMBEDDINGS, HEAD} & weights.keys():
            weights[name] = torch.cat([weights[name], torch.full((rows, 32), value)])

    change_weights(padded, pad)
    change_config(padded, vocab_size=len(load_file(padded / SINGLE)[EMBEDDINGS]))
    gradients = []
    logits = []
    for directory in (tied_or_untied, padded):
        loaded, vocabulary = load_backbone(directory)
        scores = without_unknown(loaded, loaded(input_ids=IDS).logits)
        torch.nn.functional.cross_entropy(scores[0, :-1], IDS[0, 1:]).backward()
        gradients.append(loaded.get_parameter(UP).grad)
        logits.append(scores[..., : len(vocabulary)].detach())
    assert torch.allclose(logits[0], logits[1], atol=1e-5) and torch.allclose(
        gradients[0], gradients[1], atol=1e-6
    )
    save_model(loaded, vocabulary, tmp_path / "saved")
    assert all(torch.isfinite(weight).all() for weight in load_file(tmp_path / "saved" / SINGLE).values())


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.float8_e4m3fn])
def test_quantised_weights_without_scales_are_refused(model, dtype):
    change_weights(model, lambda weights: {name: weight.to(dtype) for name, weight in weights.items()})
    with pytest.raises(DataError, match="is quantised: .* is stored as (I8|U8|F8_E4M3)"):
        inspect_model(model)


@pytest.mark.parametrize("method", ["fp8", "gptq", "bitsandbytes", "unheard-of"])
def test_a_config_that_names_a_quantisation_is_refused(model, method):
    change_config(model, quantization_config={"quant_method": method})
    with pytest.raises(
        DataError, match=rf"is quantised: its config.json has quantization_config \({method}\)"
    ):
        inspect_model(model)


def test_files_with_more_blocks_than_the_config_are_refused(model):
    change_config(model, num_hidden_layers=1)
    with pytest.raises(
        DataError, match=r"does not read: model.layers.1.input_layernorm.weight, .* and 6 more"
    ):
        inspect_model(model)


def test_an_adapter_inside_the_weights_is_refused(model):
    change_weights(
        model, lambda w: w.update({"model.layers.0.self_attn.q_proj.lora_A.weight": torch.ones(2, 32)})
    )
    with pytest.raises(DataError, match=r"does not read: .*lora_A.weight.*Merge the adapter"):
        inspect_model(model)


def test_tensors_of_other_parts_are_accepted(model):
    change_weights(model, lambda weights: weights.update({"vision_tower.layers.0.weight": torch.ones(2, 2)}))
    assert inspect_model(model).weights


def test_a_tensor_of_another_shape_is_named(model):
    change_config(model, vocab_size=1000)
    with pytest.raises(
        DataError,
        match="lack weights of the model that its config.json describes: lm_head.weight, "
        "model.embed_tokens.weight",
    ):
        inspect_model(model)


@pytest.mark.parametrize("rows", [100, 400])
def test_a_head_that_cannot_be_tied_as_the_config_says_is_refused(model, rows):
    change_weights(model, lambda weights: weights.update({HEAD: torch.ones(rows, 32)}))
    change_config(model, tie_word_embeddings=True)
    with pytest.raises(
        DataError, match=rf"lm_head.weight of the shape \({rows}, 32\); config.json ties them"
    ):
        inspect_model(model)


def test_dropout_written_as_an_integer_is_turned_off(model):
    change_config(model, attention_dropout=1)
    assert load_backbone(model)[0].config.attention_dropout == 0.0


def test_code_in_a_checkpoint_is_never_run(model, capfd):
    change_config(
        model, model_type="mine", auto_map={"AutoConfig": "mine.Config", "AutoModelForCausalLM": "mine.Model"}
    )
    (model / "mine.py").write_text("raise SystemExit(3)")
    with pytest.raises(DataError, match="cannot be loaded"):
        inspect_model(model)
    assert "Do you wish to run" not in capfd.readouterr().out


@pytest.mark.parametrize(
    "values",
    [
        *(
            {"num_hidden_layers": "2"},
            {"num_attention_heads": 3},
            {"hidden_size": -1},
            {"max_position_embeddings": None},
        ),
        {"tie_word_embeddings": "false"},
    ],
)
def test_a_config_that_transformers_refuses_is_a_data_error(model, values):
    change_config(model, **values)
    with pytest.raises(DataError, match="cannot be loaded"):
        inspect_model(model)


def test_a_model_whose_config_returns_attention_can_be_saved(model, tmp_path):
    change_config(model, output_attentions=True, output_hidden_states=True)
    save_model(*load_backbone(model), tmp_path / "saved")
    assert torch.equal(
        load_backbone(tmp_path / "saved")[0](input_ids=IDS).logits,
        load_backbone(model)[0](input_ids=IDS).logits,
    )


@pytest.mark.parametrize(
    "make",
    [lambda file: file.symlink_to("nowhere"), lambda file: file.mkdir()],
    ids=["broken link", "directory"],
)
def test_a_broken_link_or_a_directory_instead_of_weights_is_named(model, make):
    (model / SINGLE).unlink()
    make(model / SINGLE)
    with pytest.raises(
        DataError, match=r"model.safetensors is (a link to a file that is not there|no file)\."
    ):
        inspect_model(model)


@pytest.mark.parametrize("file", ["tokenizer.json", "generation_config.json"])
def test_another_damaged_file_is_a_data_error(model, file):
    (model / file).write_text("[]")
    with pytest.raises(DataError, match="cannot be loaded"):
        inspect_model(model)
