"""A stand-in of trl/extras/vllm_client.py."""

import logging
import time

import requests

logger = logging.getLogger(__name__)


class VLLMClient:
    def __init__(self, base_url, connection_timeout=0.0):
        self.session = requests.Session()
        self.base_url = base_url
        self.check_server(connection_timeout)

    def check_server(self, total_timeout=0.0, retry_interval=2.0):
        url = f"{self.base_url}/health/"
        start_time = time.time()
        while True:
            try:
                response = requests.get(url)
            except requests.exceptions.RequestException as exc:
                if time.time() - start_time >= total_timeout:
                    raise ConnectionError("The vLLM server can't be reached") from exc
            else:
                if response.status_code == 200:
                    return
            logger.info("Server is not up yet. Retrying in %s seconds...", retry_interval)
            time.sleep(retry_interval)
