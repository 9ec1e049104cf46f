import json

from tokenizers import Tokenizer

from helpers import checkpoint, reference


def test_every_id_gets_a_text_and_text_is_tokenized_as_before(tmp_path):
    reference.write_tokenizer(tmp_path)
    before = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    checkpoint.name_every_id(tmp_path, 500)
    after = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    text = "a bee visits 300 flowers, and 499 more"
    assert after.encode(text).ids == before.encode(text).ids
    assert before.decode([400]) == "" and after.decode([400, 499]) == " 400 499"
    assert after.get_vocab_size() == 500


def test_a_vocabulary_that_is_large_enough_stays_as_it_is(tmp_path):
    reference.write_tokenizer(tmp_path)
    before = json.loads((tmp_path / "tokenizer.json").read_text())
    checkpoint.name_every_id(tmp_path, 10)
    assert json.loads((tmp_path / "tokenizer.json").read_text()) == before
