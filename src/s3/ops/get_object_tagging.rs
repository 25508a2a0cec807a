//! GET /bucket/key?tagging

use super::prelude::*;

/// **Source** AWS S3 API reference, GetObjectTagging.
pub async fn get_object_tagging(s3: &S3State, request: &S3Request<'_>) -> S3Result {
    let version = super::get_object::find(s3, request).await?;
    let mut xml = XmlWriter::document("Tagging", 256);
    xml.open("TagSet");
    for (name, value) in &version.metadata.tags {
        xml.open("Tag");
        xml.element("Key", name);
        xml.element("Value", value);
        xml.close("Tag");
    }
    xml.close("TagSet");
    let mut answer = response::xml(xml.finish());
    response::add_version_of(answer.headers_mut(), request.bucket()?, &version);
    Ok(answer)
}
