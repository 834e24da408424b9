//! [`Fetch`] for [`Client`]: how a driver's requests are sent over the gateway's own connections.

use http::header::{ACCEPT, ACCEPT_ENCODING, HeaderValue};
use http::{Request, Response};

use super::client::{Client, RequestBody, ResponseBody};
use super::driver::{Fetch, FetchError, RequestPurpose};
use super::inflate::InflatedBody;
use crate::resource::{Encoding, GATEWAY_GZIP};

/// Metadata only if the server can produce it, otherwise whole objects. Both contain everything that is read from such a
/// list.
const METADATA_LIST: HeaderValue = HeaderValue::from_static(
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json",
);
/// The same without managed fields, which are not read. A server that does not know the parameter sends them anyway.
const VERSIONS_LIST: HeaderValue = HeaderValue::from_static(
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1;drop=metadata.managedFields,\
     application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json",
);
const METADATA: HeaderValue = HeaderValue::from_static(
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json",
);

impl Fetch for Client {
    type Body = InflatedBody<ResponseBody>;

    async fn get(
        &self,
        path_and_query: String,
        purpose: RequestPurpose,
        encoding: Encoding,
    ) -> Result<Response<Self::Body>, FetchError> {
        let accept = match purpose {
            RequestPurpose::Read | RequestPurpose::ReadShort | RequestPurpose::Watch => {
                HeaderValue::from_static(encoding.media_type())
            }
            RequestPurpose::ReadMetadata => METADATA_LIST,
            RequestPurpose::ReadVersions => VERSIONS_LIST,
            RequestPurpose::WatchMetadata => METADATA,
        };
        let mut request = Request::get(path_and_query).header(ACCEPT, accept);
        if self.is_gateway() {
            request = request.header(ACCEPT_ENCODING, HeaderValue::from_static(GATEWAY_GZIP));
        }
        let request = request.body(RequestBody::Empty);
        let request = request.map_err(|error| FetchError(error.into()))?;
        let sent = match purpose {
            RequestPurpose::Read | RequestPurpose::ReadMetadata | RequestPurpose::ReadVersions => {
                self.send(request).await
            }
            RequestPurpose::ReadShort => self.send_short(request).await,
            RequestPurpose::Watch | RequestPurpose::WatchMetadata => self.send_watch(request).await,
        };
        sent.map(InflatedBody::of)
            .map_err(|error| FetchError(error.into()))
    }

    fn lagging(&self) {
        self.prefer_another_server();
    }
}
