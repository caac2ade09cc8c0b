"""What a picture of a model shows: where norms stand, where order enters, and what is masked."""

from helpers.look_cases import imported

from heedful.inside.drawing import DrawnShell, drawing


def test_a_translator_adds_its_positions_to_the_embeddings_and_masks_the_future():
    encoder, decoder = drawing(imported("transformer").model)
    assert encoder == DrawnShell("encoder", encoder.norm, "sinusoidal", "", ["Full"])
    assert decoder == DrawnShell("decoder", encoder.norm, "sinusoidal", "", ["Causal"])


def test_a_llama_rotates_queries_and_keys_and_normalizes_before_each_layer():
    assert drawing(imported("llama").model) == [DrawnShell("decoder", "pre-norm", "", "rotary", ["Causal"])]
