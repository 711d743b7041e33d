"""Models of providers that do not speak OpenAI's API, through the litellm package; it is imported when first needed."""

from transom.proxy.upstream.litellm.upstream import LitellmUpstream

__all__ = ["LitellmUpstream"]
