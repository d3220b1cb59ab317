"""What a GPU and a model are: the numbers of `scenarios/hardware/*.toml` and `scenarios/models/*.toml`."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, model_validator

Share = Annotated[float, Field(gt=0, le=1)]
NonNegative = Annotated[float, Field(ge=0)]


class _Data(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


Range = tuple[NonNegative, NonNegative]


class EfficiencyRanges(_Data):
    """Least and largest credible value of each efficiency, from its source; a key left out is exact."""

    decode_weight_bandwidth_share: Range | None = None
    decode_kv_bandwidth_share: Range | None = None
    decode_flops_share: Range | None = None
    prefill_flops_share: Range | None = None
    training_flops_share: Range | None = None
    step_overhead_s: Range | None = None
    layer_overhead_s: Range | None = None
    request_overhead_s: Range | None = None
    decode_slowdown: Range | None = None
    microbatch_overhead_s: Range | None = None


class Efficiencies(_Data):
    """What a real system reaches of the peaks; one set a hardware + engine pair, each with its source.

    Sources stand as comments in the hardware file. `*_share` is achieved / peak.
    """

    decode_weight_bandwidth_share: Share
    """Share of HBM bandwidth while reading weights in a decode step."""
    decode_kv_bandwidth_share: Share
    """Share of HBM bandwidth while reading KV cache in a decode step."""
    decode_flops_share: Share
    """Share of peak FLOP/s of a decode step's matrix products at large batch."""
    prefill_flops_share: Share
    """Share of peak FLOP/s of prefill (linear FLOPs plus attention FLOPs)."""
    training_flops_share: Share
    """MFU of the trainer on full micro-batches (useful FLOPs, recomputation excluded)."""
    step_overhead_s: NonNegative
    """Host time of one engine step that no kernel overlaps."""
    layer_overhead_s: NonNegative
    """Launch overhead of one transformer layer in one engine step."""
    request_overhead_s: NonNegative
    """Host time of one running request in one engine step."""
    decode_slowdown: Annotated[float, Field(ge=1)] = 1.0
    """Measured engine step / (kernel sum + overheads): what the engine version adds to the kernels."""
    microbatch_overhead_s: NonNegative
    """Time of one trainer micro-batch that does not grow with its tokens (launch, pipeline fill)."""
    ranges: EfficiencyRanges = EfficiencyRanges()
    """How far off each of them may be."""

    @model_validator(mode="after")
    def _ranges_hold_their_values(self) -> "Efficiencies":
        for name, value in self.given_ranges().items():
            low, high = value
            if not low <= getattr(self, name) <= high:
                raise ValueError(f"ranges.{name} does not hold the value {getattr(self, name):g}")
            if name.endswith("_share") and not 0 < low <= high <= 1:
                raise ValueError(f"ranges.{name} is not between 0 and 1")
            if name == "decode_slowdown" and low < 1:
                raise ValueError("ranges.decode_slowdown starts below 1")
        return self

    def given_ranges(self) -> dict[str, tuple[float, float]]:
        """The ranges there are, by the name of the efficiency."""
        found: dict[str, tuple[float, float] | None] = {
            name: getattr(self.ranges, name) for name in EfficiencyRanges.model_fields
        }
        return {name: value for name, value in found.items() if value is not None}


class Hardware(_Data):
    """One kind of GPU in its usual server. Peaks are per GPU; link rates are one direction per GPU."""

    name: str
    flops_per_s: PositiveFloat
    """Dense bf16 FLOP/s."""
    hbm_bytes: PositiveFloat
    hbm_bytes_per_s: PositiveFloat
    nvlink_bytes_per_s: PositiveFloat
    network_bytes_per_s: PositiveFloat
    """Scale-out network, per GPU."""
    host_link_bytes_per_s: PositiveFloat
    """PCIe, per GPU, for weights that come from host memory."""
    storage_bytes_per_s: PositiveFloat
    """Shared storage, for the whole cluster, read or written."""
    gpus_per_node: PositiveInt
    allreduce_latency_s: NonNegative
    """Small-message all-reduce inside a node."""
    efficiencies: Efficiencies
    usd_per_gpu_hour: NonNegative | None = None
    """List price; None where no public one is known."""
    fits_as: str | None = None
    """Name under which `scenarios/fits/decode.toml` lists measured decode steps for this die."""
    source: str


class Model(_Data):
    """Shape of a decoder-only transformer with grouped-query attention, dense or mixture of experts."""

    name: str
    layers: PositiveInt
    hidden: PositiveInt
    heads: PositiveInt
    kv_heads: PositiveInt
    head_dim: PositiveInt
    vocab: PositiveInt
    params: PositiveInt
    """All parameters, embeddings included."""
    matmul_params: PositiveInt
    """Parameters that every token is multiplied with: layers (only active experts) plus the output head."""
    experts: PositiveInt | None = None
    experts_per_token: PositiveInt | None = None
    expert_params: PositiveInt | None = None
    """Parameters of one expert in one layer."""
    bytes_per_param: PositiveInt = 2
    fits_as: str | None = None
    """Name under which `scenarios/fits/decode.toml` lists measured decode steps for this shape."""
    source: str

    @property
    def weight_bytes(self) -> int:
        """Bytes of all weights in the serving precision."""
        return self.params * self.bytes_per_param

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes of KV cache of one token over all layers (bf16)."""
        return 2 * 2 * self.layers * self.kv_heads * self.head_dim
