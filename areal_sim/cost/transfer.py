"""How long weights travel: trainer to storage or network, on to replicas, and a colocated role switch."""

from areal_sim.cost.work import ACTIVATION_BYTES
from interfaces import memory
from interfaces.feasibility import data_parallel
from interfaces.scenario import Resolved


class TransferCost:
    """Times of moving one set of weights in one scenario; bytes / rate, nothing overlapped."""

    def __init__(self, resolved: Resolved) -> None:
        self._hardware = resolved.hardware
        self._scenario = resolved.scenario
        self._model = resolved.model
        self._bytes = float(memory.replica_weight_bytes(resolved.model))
        self._disk = resolved.scenario.weight_sync.method == "disk"

    def publish_s(self) -> float:
        """Trainer side.

        disk: one data-parallel rank writes; its GPUs push their shards through their own host and network
        links into shared storage, the slowest of the three counts. broadcast: tensor-parallel shards of
        each pipeline stage are gathered over NVLink, stages side by side; the way to the replicas is in
        `load_s`.
        """
        hardware, trainer = self._hardware, self._scenario.trainer
        if self._disk:
            writers = trainer.tensor_parallel * trainer.pipeline_parallel
            links = writers * min(hardware.host_link_bytes_per_s, hardware.network_bytes_per_s)
            return self._bytes / min(hardware.storage_bytes_per_s, links)
        missing = 1 - 1 / trainer.tensor_parallel
        return missing * self._bytes / trainer.pipeline_parallel / hardware.nvlink_bytes_per_s

    def load_s(self, replicas_loading: int) -> float:
        """Replica side, with `weight_sync.overhead_s`.

        disk: every node that loads reads the weights once into its page cache, through its network links
        and its part of the shared storage; then each GPU copies its shard over its host link. broadcast: a
        pipelined chain from the trainer, in which every GPU receives all weights and keeps its shard (as
        NCCL broadcasts in AReaL and verl do): the slowest link decides, not the number of receivers.
        """
        hardware, overhead = self._hardware, self._scenario.weight_sync.overhead_s
        if not self._disk:
            return overhead + self._bytes / self._broadcast_bytes_per_s()
        ranks = self._scenario.engine.tensor_parallel
        nodes = -(-replicas_loading * ranks // hardware.gpus_per_node)
        storage_s = nodes * self._bytes / hardware.storage_bytes_per_s
        node_s = self._bytes / (hardware.gpus_per_node * hardware.network_bytes_per_s)
        copy_s = self._bytes / ranks / hardware.host_link_bytes_per_s
        return overhead + max(storage_s, node_s) + copy_s

    def switch_s(self) -> float:
        """One role switch of colocated GPUs.

        Serving weights go one way over the host link and the optimizer state (fp32 master weights and
        moments, sharded as the trainer shards it) the other way, one after the other. The trainer's bf16
        weights stay on the GPU and gradients need no copy, as `interfaces.memory` assumes.
        """
        trainer = self._scenario.trainer
        per_param = memory.training_state_bytes_per_param(
            data_parallel(self._scenario), trainer.distributed_optimizer
        )
        kept = ACTIVATION_BYTES + 4  # bf16 weight, fp32 gradient
        shards = trainer.tensor_parallel * trainer.pipeline_parallel
        state = (per_param - kept) * self._model.params / shards
        serving = self._bytes / self._scenario.engine.tensor_parallel
        return (state + serving) / self._hardware.host_link_bytes_per_s

    def _broadcast_bytes_per_s(self) -> float:
        cluster, hardware = self._scenario.cluster, self._hardware
        inside = cluster.rollout_gpus + cluster.trainer_gpus <= hardware.gpus_per_node
        return hardware.nvlink_bytes_per_s if inside else hardware.network_bytes_per_s
