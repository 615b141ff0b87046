"""Small networks are trained on one thread: more of them would wait for each other."""

import pytest
from needs import needs


@pytest.fixture(autouse=True, scope="session")
@needs("torch")
def _one_thread():
    torch = pytest.importorskip("torch", reason="training needs it: pip install 'lightbed[torch]'")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
