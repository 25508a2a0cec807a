//! GET /bucket?uploads

use super::listing::{ListParameters, Position, text, write_owner};
use super::prelude::*;
use crate::model::{Upload, UploadId};
use crate::store::{ListRow, Page, StoreError};

/// **Source** AWS S3 API reference, ListMultipartUploads.
pub async fn list_multipart_uploads(s3: &S3State, request: &S3Request<'_>) -> S3Result {
    let list = ListParameters::new(&request.query, "max-uploads")?;
    let key_marker = text(&request.query, "key-marker");
    let id_marker = text(&request.query, "upload-id-marker");
    // Without a key marker AWS ignores the other one.
    let after_upload = match (key_marker.as_str(), id_marker.as_str()) {
        ("", _) | (_, "") => None,
        (_, id) => Some(UploadId::from_hex(id).ok_or_else(|| {
            S3Error::new(S3ErrorCode::InvalidArgument)
                .message("Invalid uploadId marker")
                .argument("upload-id-marker", id)
        })?),
    };
    let is_prefix = list.is_common_prefix(&key_marker);
    let after = Position { name: key_marker.clone(), is_prefix };
    let page = if list.rows_max == 0 {
        Page { rows: Vec::new(), truncated: false }
    } else {
        let bucket = request.bucket()?.id;
        s3.store.list_uploads(bucket, &list.ask(after), after_upload).await?
    };
    let mut xml = XmlWriter::document("ListMultipartUploadsResult", 1024 + 512 * page.rows.len());
    xml.element("Bucket", request.bucket()?.name.as_str());
    list.show(&mut xml, "KeyMarker", &key_marker);
    xml.element("UploadIdMarker", &id_marker);
    write_next(&mut xml, &list, &page);
    list.echo(&mut xml);
    xml.number("MaxUploads", list.rows_max as u64);
    xml.element("IsTruncated", if page.truncated { "true" } else { "false" });
    let users = others(s3, request.caller(), &page).await?;
    for row in &page.rows {
        match row {
            ListRow::Item(upload) => {
                let owner = users.iter().find(|user| user.canonical_id == upload.owner);
                write_upload(&mut xml, &list, upload, owner.unwrap_or(request.caller()));
            }
            ListRow::CommonPrefix(prefix) => list.common_prefix(&mut xml, prefix),
        }
    }
    Ok(response::xml(xml.finish()))
}

/// The users of this server, when somebody else than the caller began an upload of the page.
async fn others(
    s3: &S3State,
    caller: &User,
    page: &Page<ListRow<Arc<Upload>>>,
) -> Result<Vec<User>, S3Error> {
    let foreign = |row: &ListRow<Arc<Upload>>| match row {
        ListRow::Item(upload) => upload.owner != caller.canonical_id,
        ListRow::CommonPrefix(_) => false,
    };
    if caller.is_anonymous() || !page.rows.iter().any(foreign) {
        return Ok(Vec::new());
    }
    Ok(s3.store.catalog().users().await.map_err(StoreError::from)?)
}

fn write_next(xml: &mut XmlWriter, list: &ListParameters, page: &Page<ListRow<Arc<Upload>>>) {
    match page.rows.last().filter(|_| page.truncated) {
        None => {}
        Some(ListRow::CommonPrefix(prefix)) => list.show(xml, "NextKeyMarker", prefix),
        Some(ListRow::Item(upload)) => {
            list.show(xml, "NextKeyMarker", upload.key.as_str());
            xml.element("NextUploadIdMarker", &upload.id.to_string());
        }
    }
}

/// `owner` is the user who began the upload, as far as he is known.
fn write_upload(xml: &mut XmlWriter, list: &ListParameters, upload: &Upload, owner: &User) {
    xml.open("Upload");
    list.show(xml, "Key", upload.key.as_str());
    xml.element("UploadId", &upload.id.to_string());
    write_owner(xml, "Initiator", &upload.owner, owner);
    write_owner(xml, "Owner", &upload.owner, owner);
    let class = upload.metadata.storage_class.as_deref().unwrap_or("STANDARD");
    xml.element("StorageClass", class);
    xml.element("Initiated", &iso_date(upload.initiated_ms));
    if let Some((algorithm, kind)) = upload.checksum {
        xml.element("ChecksumAlgorithm", algorithm.name());
        xml.element("ChecksumType", kind.name());
    }
    xml.close("Upload");
}
