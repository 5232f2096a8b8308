"""A stand-in of trl/generation/vllm_client.py of TRL 1.16."""

import logging
import time
from concurrent.futures import ThreadPoolExecutor

import requests
from vllm.distributed.weight_transfer.nccl_common import trainer_init as open_trainer_endpoint
from vllm.distributed.weight_transfer.packed_tensor import packed_nccl_broadcast_producer
from vllm.utils.network_utils import get_ip

logger = logging.getLogger(__name__)


class VLLMClient:
    def __init__(self, base_url, group_port=51216, connection_timeout=0.0):
        self.session = requests.Session()
        self.base_url = base_url
        self.group_port = group_port
        self.check_server(connection_timeout)

    def _post(self, url, **kwargs):
        response = self.session.post(url, **kwargs)
        if response.status_code != 200:
            raise Exception(f"Request failed: {response.status_code}, {response.text}")

    def check_server(self, total_timeout=0.0, retry_interval=2.0):
        url = f"{self.base_url}/health"
        start_time = time.time()
        while True:
            try:
                response = requests.get(url)
            except requests.exceptions.RequestException as exc:
                elapsed_time = time.time() - start_time
                if elapsed_time >= total_timeout:
                    raise ConnectionError(
                        f"The vLLM server can't be reached at {self.base_url}"
                    ) from exc
            else:
                if response.status_code == 200:
                    logger.info("Server is up!")
                    return
            logger.info(f"Server is not up yet. Retrying in {retry_interval} seconds...")
            time.sleep(retry_interval)

    def get_world_size(self):
        response = self.session.get(f"{self.base_url}/get_world_size")
        return response.json()["world_size"]

    def init_communicator(self):
        init_info = {
            "master_address": get_ip(),
            "master_port": self.group_port,
            "rank_offset": 1,
            "world_size": self.get_world_size() + 1,
        }
        with ThreadPoolExecutor(max_workers=1) as executor:
            future = executor.submit(
                self._post,
                f"{self.base_url}/init_weight_transfer_engine",
                json={"init_info": init_info},
            )
            self.communicator = open_trainer_endpoint(init_info)
            future.result()

    def update_named_params(self, named_params):
        update_info = {"names": [name for name, _ in named_params]}
        with ThreadPoolExecutor(max_workers=1) as executor:
            future = executor.submit(
                self._post, f"{self.base_url}/update_weights", json={"update_info": update_info}
            )
            packed_nccl_broadcast_producer(
                named_params, self.communicator, 0, post_iter_func=lambda item: item[1]
            )
            future.result()
