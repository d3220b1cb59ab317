import pytest

from interfaces import memory
from interfaces.hardware import Model
from interfaces.scenario import Engine, Trainer
from interfaces.scenario_file import load_hardware, load_model

GIB = 2**30


def toy(**changes: int) -> Model:
    shape = {"layers": 2, "hidden": 64, "heads": 8, "kv_heads": 2, "head_dim": 8, "vocab": 100}
    sizes = {"params": 1000, "matmul_params": 900}
    return Model.model_validate({"name": "toy", "source": "made up", **shape, **sizes, **changes})


def test_weights_are_two_bytes_a_parameter() -> None:
    assert memory.replica_weight_bytes(toy()) == 2000


@pytest.mark.parametrize(("tensor_parallel", "kv_bytes"), [(1, 128), (2, 64), (4, 64), (8, 64)])
def test_kv_heads_are_split_then_copied(tensor_parallel: int, kv_bytes: int) -> None:
    # K and V, bf16, 2 layers, 2 KV heads of 8: 2 * 2 * 2 * 2 * 8 = 128 bytes.
    assert memory.kv_bytes_per_gpu_and_token(toy(), tensor_parallel) == kv_bytes


def test_kv_bytes_on_one_gpu_equal_the_models() -> None:
    model = load_model("qwen2.5-7b")
    assert memory.kv_bytes_per_gpu_and_token(model, 1) == model.kv_bytes_per_token == 57344


def test_workspace() -> None:
    engine = Engine(max_num_batched_tokens=10, max_num_seqs=3, tensor_parallel=2)
    # Prefill 32 * 64 hidden * 10 tokens, logits 6 bytes * 3 sequences * 100 words / 2 ranks.
    assert memory.engine_workspace_bytes(toy(), engine) == 20480 + 900


def test_kv_capacity_is_what_weights_and_workspace_leave() -> None:
    hardware, model = load_hardware("h800"), load_model("deepseek-r1-distill-qwen-7b")
    engine = Engine(gpu_memory_utilization=0.9)
    room = int(0.9 * 80 * GIB) - 2 * 7615616512 - memory.engine_workspace_bytes(model, engine)
    assert memory.kv_capacity_tokens(hardware, model, engine) == room // 57344
    assert memory.kv_capacity_tokens(hardware, model, engine) == pytest.approx(1.06e6, rel=0.02)


def test_colocation_counts_the_trainers_weights() -> None:
    hardware, model, engine = load_hardware("h800"), load_model("qwen2.5-7b"), Engine()
    alone = memory.kv_room_bytes_per_gpu(hardware, model, engine)
    shared = memory.kv_room_bytes_per_gpu(hardware, model, engine, colocated=True)
    assert alone - shared == model.weight_bytes
    assert memory.kv_capacity_tokens(hardware, model, engine, colocated=True) == shared // 57344


def test_no_room_is_no_tokens() -> None:
    hardware, model = load_hardware("h800"), load_model("qwen3-235b-a22b")
    assert memory.kv_room_bytes_per_gpu(hardware, model, Engine()) < 0
    assert memory.kv_capacity_tokens(hardware, model, Engine()) == 0


def test_capacity_grows_faster_than_the_number_of_gpus() -> None:
    hardware, model = load_hardware("h800"), load_model("qwen2.5-32b")
    tokens = [memory.kv_capacity_tokens(hardware, model, Engine(tensor_parallel=n)) for n in (1, 2, 4)]
    assert tokens[1] > 2 * tokens[0]
    assert tokens[2] > 2 * tokens[1]


@pytest.mark.parametrize(
    ("ranks", "distributed", "bytes_per_param"), [(1, False, 18), (8, False, 18), (1, True, 18), (4, True, 9)]
)
def test_training_state(ranks: int, distributed: bool, bytes_per_param: float) -> None:
    assert memory.training_state_bytes_per_param(ranks, distributed) == bytes_per_param


@pytest.mark.parametrize(
    ("trainer", "gpus", "expected"),
    [
        # State 18 * 1000; a token: 2 layers * 2 * 64 inputs + 34 * 64 layer + 6 * 100 logits = 3032.
        (Trainer(), 1, 18_000 + 10 * 3032),
        # Optimizer over 4 ranks: 6 + 12 / 4 = 9.
        (Trainer(), 4, 9_000 + 10 * 3032),
        (Trainer(distributed_optimizer=False), 4, 18_000 + 10 * 3032),
        # Everything over two tensor ranks.
        (Trainer(tensor_parallel=2), 2, 9_000 + 5 * 3032),
        # Without checkpointing both layers keep all: 2 * 34 * 64 + 600.
        (Trainer(activation_checkpointing=False), 1, 18_000 + 10 * 4952),
        # Last of two stages: 128 inputs + 2176 + 600 = 2904; the first: 2 * 128 + 2176 = 2432.
        (Trainer(pipeline_parallel=2), 2, 9_000 + 10 * 2904),
    ],
)
def test_trainer_bytes(trainer: Trainer, gpus: int, expected: int) -> None:
    assert memory.trainer_bytes_per_gpu(toy(), trainer, gpus, 10) == expected


def test_the_first_stage_counts_when_it_is_fuller() -> None:
    # Vocabulary of 1: the last stage has no logits to speak of, the first holds two micro-batches of inputs.
    trainer = Trainer(pipeline_parallel=2)
    assert memory.trainer_bytes_per_gpu(toy(vocab=1), trainer, 2, 10) == 9_000 + 10 * (2 * 128 + 2176)


@pytest.mark.parametrize(
    ("model", "tensor", "pipeline", "gpus"),
    [("1.5b", 1, 2, 2), ("1.5b", 1, 2, 32), ("7b", 1, 4, 8), ("7b", 1, 4, 16), ("32b", 2, 8, 64)],
)
def test_the_papers_trainers_fit(model: str, tensor: int, pipeline: int, gpus: int) -> None:
    trainer = Trainer(tensor_parallel=tensor, pipeline_parallel=pipeline)
    shape = load_model(f"deepseek-r1-distill-qwen-{model}")
    needed = memory.trainer_bytes_per_gpu(shape, trainer, gpus, 32768)
    assert 0.2 * 80 * GIB < needed < memory.TRAINER_USABLE_SHARE * 80 * GIB


def test_one_gpu_cannot_train_7b() -> None:
    needed = memory.trainer_bytes_per_gpu(load_model("qwen2.5-7b"), Trainer(), 1, 0)
    assert needed == 18 * 7615616512 > 80 * GIB
